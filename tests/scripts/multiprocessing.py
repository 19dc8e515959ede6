import multiprocessing, glob, zlib
def work(name): return name, zlib.crc32(open(name, 'rb').read())
if __name__ == '__main__':
    with multiprocessing.get_context('fork').Pool(3) as pool:
        for result in pool.map(work, sorted(glob.glob('tree/*/*.txt'))): print(*result)
