import os, hashlib
for folder, folders, names in os.walk('tree'):
    folders.sort()
    for name in sorted(names):
        path = os.path.join(folder, name)
        if os.path.exists(path): print(path, hashlib.md5(open(path, 'rb').read()).hexdigest())
