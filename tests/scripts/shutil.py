import shutil, tempfile, os
shutil.copytree('tree/folder-1', 'copy')
shutil.make_archive('packed', 'zip', 'tree/folder-2')
print(sorted(os.listdir('copy')))
os.remove('packed.zip')
