import concurrent.futures, glob, zlib
def work(name): return zlib.crc32(open(name, 'rb').read())
with concurrent.futures.ThreadPoolExecutor(5) as pool:
    print(list(pool.map(work, sorted(glob.glob('tree/*/*.txt')))))
