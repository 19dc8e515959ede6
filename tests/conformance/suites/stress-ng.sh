# about: stress-ng's system call stressors, each checking what it gets (--verify)
# command: stress-ng stress-ng
# user: nobody
# limit: 60
# programs: stress-ng
# quick: 8
# left out: resources: it takes all that the machine has, of its disk too
STRESSORS="access aio bad-altstack brk cap chdir chmod clone close context copy-file daemon dentry dir dirdeep
  dirmany dup dynlib epoll eventfd exec fallocate fault fcntl fiemap file-ioctl filename flock fork fp-error fpunch
  fstat full funcret futex get getdent getrandom handle hdd inode-flags inotify io iomix itimer kcmp kill lease
  link locka lockf lockofd longjmp madvise malloc membarrier memfd mincore mknod mmap mmapaddr mmapfixed mmapfork
  mmaphuge mmapmany mprotect mq mremap msg msync munmap nanosleep null open personality pidfd pipe poll prctl
  procfs pthread pty readahead remap rename resources revio rlimit robust rseq rt sigabrt sigaltstack sigchld
  sigfd sigfpe sigio signal signest sigpending sigpipe sigq sigrt sigsegv sigsuspend sigtrap sleep sock sockfd
  sockpair spawn splice stack switch symlink sync-file syscall sysinfo tee timerfd touch tsc tun unshare urandom
  userfaultfd utime vdso vfork vforkmany vm vm-addr vm-rw vm-segv vm-splice wait x86syscall yield zombie"

cases() {
  local stressor all
  all=" $(stress-ng --stressors 2>/dev/null) "
  for stressor in $STRESSORS; do
    case "$all" in *" $stressor "*) echo "$stressor" ;; esac
  done
}

run() {
  exec stress-ng --verify --oomable --temp-path "$TMPDIR" --timeout 1s --hdd-bytes 8m --iomix-bytes 8m \
    --readahead-bytes 16m --vm-bytes 32m --"$1" 1
}

cold() { program_files; }
