# about: POSIX file system calls (pjdfstest), each path of each call
# command: cargo cargo
# user: root
# limit: 120
PROGRAM=$CONFORMANCE/crates/bin/pjdfstest

build() { cargo install -q --root "$CONFORMANCE/crates" --version 0.2.2 pjdfstest; }

cases() {
  printf '%s\n' chflags chmod chown ftruncate granular link mkdir mkfifo mknod open posix_fallocate rename rmdir \
    symlink truncate unlink utimensat
}

run() {
  cat > configuration.toml <<'END'
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END
  chmod 755 . .. "$HOME" "$TMPDIR"
  exec "$PROGRAM" -c configuration.toml -p "$TMPDIR" "$1"
}

verdicts() {
  sed 's/\x1b\[[0-9;]*m//g' "$1" | sed -n 's/^\([^[:space:]]*::[^[:space:]]*\) *\(ok\|FAILED\|skipped\|expected failure\)$/\2\t\1/p'
}

cold() { program_files; echo "$PROGRAM"; }
