import json, glob
data = {path: open(path).read().split()[:50] for path in sorted(glob.glob('tree/*/*.txt'))}
json.dump(data, open('out.json', 'w'))
print(len(json.load(open('out.json'))))
