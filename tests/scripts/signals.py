import signal, os, time
ticks = []
signal.signal(signal.SIGALRM, lambda *a: ticks.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
total = 0
for round in range(30):
    for at in range(8): total += len(open(f'tree/folder-{at}/file-1.txt').read())
    time.sleep(0.001)
signal.setitimer(signal.ITIMER_REAL, 0)
print(total, len(ticks) > 2)
