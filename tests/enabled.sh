#!/usr/bin/env bash
# What happens where all of a user's programs run beside one host (`runahead enable`), each situation by
# itself:
#
#   unshare --mount --propagation private tests/enabled.sh RUNAHEAD FOLDER SITUATION
#
# As root: the users are numbers that nobody has. FOLDER: an empty one on a disk. `/run/user`, `/var/tmp` and
# `/etc` are others here, so nothing of the machine's own is touched. Says what is wrong, one line each.
set -u
runahead=$(readlink -f "$1") folder=$2 situation=$3
parts=$(dirname "$runahead")
[ -e "$parts/runahead-tools" ] || parts=$(readlink -f "$parts/../lib/runahead")
# Two that no other situation has, which runs at the same time.
user=$((40000 + 2 * ($$ % 10000)))
other=$((user + 1))
wrong=0

die() { printf 'enabled: %s\n' "$*" >&2; exit 2; }
bad() { wrong=$((wrong + 1)); printf '%s: %s\n' "$situation" "$*"; }
same() { [ "$2" = "$3" ] || bad "$1: '$2' is not '$3'"; }

# as USER COMMAND...: with nothing in its environment but what a login gives.
as() {
  local number=$1
  shift
  (cd "$folder/$number" && exec env -i HOME="$folder/$number" PATH="$parts:/usr/bin:/bin" LC_ALL=C \
    setpriv --reuid="$number" --regid="$number" --clear-groups -- "$@")
}

# login USER LINE: a login shell that has read its profile starts another, which does the line.
login() { as "$1" bash -lc 'exec bash -c "$1"' login "$2"; }

home() {
  mkdir -p "$folder/$1"
  chown "$1:$1" "$folder/$1"
}

enabled() { as "$user" runahead enable "$@" > "$folder/said" 2>&1 || bad "enable: $(cat "$folder/said")"; }
session() { cut -d: -f1 "$place/session" 2>/dev/null | head -n 1; }
state() { (cd "$folder/$user" && find . -printf '%p %m %u %y\n' | sort && cat .profile 2>/dev/null); }
left() { ps -o pid=,stat=,args= -u "$1" | awk '$2 !~ /^Z/'; }
# 1: grep, under whatever name follows, is beside a host; 0: it is not.
joined='grep -q runahead-session /proc/self/maps; echo $((1 - $?))'

# Waits at most some seconds until a condition holds.
until_so() { local n; for n in $(seq 200); do "$@" && return 0; sleep 0.05; done; return 1; }
is_over() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status"; }
is_other() { [ -n "$(session)" ] && [ "$(session)" != "$1" ]; }

mount -t tmpfs -o mode=755 none /run/user || die "no mount"
mount -t tmpfs -o mode=1777 none /var/tmp || die "no mount"
chmod 755 "$folder"
home "$user"
home "$other"
mkdir -m 700 "/run/user/$user"
chown "$user:$user" "/run/user/$user"
place=/run/user/$user/runahead
mkdir "$folder/data"
for name in 1 2 3 4 5 6 7 8; do head -c 30000 /dev/urandom | base64 > "$folder/data/$name"; done
cold() { sync -f "$folder/data/1"; for name in "$folder"/data/*; do dd if="$name" iflag=nocache count=0 status=none; done; }

# What is compared, alone and beside the host.
programs='exec 2>&1; umask; id -u; cat $1/data/*; grep -rc aa $1/data; tar cf - -C $1/data . | md5sum; md5sum $1/data/*;
  python3 -S -c "import os,sys; print(sorted(os.listdir(sys.argv[1])), [len(open(sys.argv[1]+chr(47)+f).read()) for f in sorted(os.listdir(sys.argv[1]))], sorted(os.listdir(\"/proc/self/fd\")))" $1/data;
  sh -c "exit 3"; echo $?; (sh -c "kill -9 \$\$"; echo $?) 2>/dev/null; find $1/data -newer / | wc -l; nowhere; echo $?;
  env -i /bin/cat $1/data/1 | md5sum; for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do expr $n + 1; done; ls /nowhere; jobs -p; ulimit -a'

case $situation in
programs)
  cold
  alone=$(as "$user" bash -c "$programs" bash "$folder")
  enabled
  for round in 1 2; do
    cold
    beside=$(as "$user" bash -lc 'exec bash -c "$1" bash "$2"' login "$programs" "$folder")
    [ "$alone" = "$beside" ] || bad "programs differ: $(diff <(echo "$alone") <(echo "$beside") | head -n 5)"
  done
  same "they run beside a host" "$(login "$user" "$joined")" 1
  # What is read there is run ahead of.
  until_so test "$(cold; login "$user" "cat $folder/data/* | wc -c; sleep 0.1" | head -n 1)" -gt 0 || bad "nothing is read"
  ;;
environment)
  touch "$folder/$user/.zshrc"
  as "$user" mkdir -p "$folder/$user/.config/fish"
  chown "$user" "$folder/$user/.zshrc"
  enabled
  same "alone" "$(as "$user" bash -c 'env | sort')" "$(as "$user" bash -lc "PATH=$parts:/usr/bin:/bin env | sort" | grep -v -e LD_PRELOAD -e RUNAHEAD_SESSION)"
  same "variables" "$(as "$user" runahead enable --print-env)" "$(as "$user" bash -lc 'env' | grep -e LD_PRELOAD -e RUNAHEAD_SESSION)"
  same "variables" "$(as "$user" runahead enable --print-env)" "LD_PRELOAD=$parts/librunahead_agent.so
RUNAHEAD_SESSION=enabled"
  same "what was preloaded before stays" "$(as "$user" env LD_PRELOAD=libm.so.6 bash -lc 'echo $LD_PRELOAD')" "$parts/librunahead_agent.so:libm.so.6"
  same "a run of its own" "$(as "$user" bash -lc "$parts/"'runahead run -- sh -c "echo \$RUNAHEAD_SESSION" | cut -d: -f1 | tr -d 0-9')" ""
  same "off" "$(as "$user" env RUNAHEAD=off bash -lc 'echo $RUNAHEAD_SESSION')" ""
  same "off in an enabled shell" "$(login "$user" "RUNAHEAD=off $joined")" 0
  for shell in dash zsh fish; do
    command -v "$shell" > /dev/null || continue
    same "$shell" "$(as "$user" "$shell" -lc 'echo $RUNAHEAD_SESSION' 2>&1 < /dev/null)" enabled
  done
  ;;
disable)
  printf '# mine\n' > "$folder/$user/.profile"
  chown "$user:$user" "$folder/$user/.profile"
  before=$(state)
  enabled
  host=$(session)
  mkfifo "$folder/in"
  as "$user" bash -lc 'exec bash' < "$folder/in" > "$folder/out" 2>&1 &
  exec 7> "$folder/in"
  echo "$joined" >&7
  until_so grep -q 1 "$folder/out" || bad "an open shell is not beside the host"
  said=$(as "$user" runahead disable 2>&1) || bad "disable: $said"
  case $said in *"bash ("*) ;; *) bad "what runs on is not listed: $said" ;; esac
  until_so is_over "$host" || bad "the host lives on"
  same "the home" "$(state)" "$before"
  [ ! -e "$place" ] || bad "the folder stays: $(ls "$place")"
  : > "$folder/out"
  echo "$joined; cat $folder/data/1 | md5sum; ls /nowhere; echo over" >&7
  until_so grep -q over "$folder/out"
  same "an open shell's programs" "$(cat "$folder/out")" "0
$(md5sum < "$folder/data/1")
ls: cannot access '/nowhere': No such file or directory
over"
  exec 7>&-
  wait
  same "processes" "$(left "$user")" ""
  same "a new shell" "$(as "$user" bash -lc 'env | grep -e LD_PRELOAD -e RUNAHEAD')" ""
  as "$user" runahead status > "$folder/said" && bad "status says that it is on"
  as "$user" env LD_PRELOAD="$parts/librunahead_agent.so" RUNAHEAD_SESSION=enabled \
    runahead status > "$folder/said"
  grep -q 'what is started here runs plainly' "$folder/said" ||
    bad "an open shell is said to be: $(cat "$folder/said")"
  same "disable again" "$(as "$user" runahead disable 2>&1)" "Runahead was not on"
  ;;
others)
  # Files that are not Runahead's stay as they are, byte for byte.
  as "$user" mkdir -p "$folder/$user/.config/fish/conf.d" "$folder/$user/dots"
  as "$user" sh -c 'printf "echo" > dots/profile; ln -s dots/profile .profile; : > .zprofile; : > .bash_login; chmod 400 .bash_login'
  contents() { (cd "$folder/$user" && find . -printf '%p %m %u %y %l\n' | sort; cd "$folder/$user" && find . -type f -exec md5sum {} + | sort); }
  before=$(contents)
  enabled
  as "$user" runahead disable > /dev/null || bad "disable"
  same "the home" "$(contents)" "$before"
  as "$user" sh -c 'echo "set mine 1" > .config/fish/conf.d/runahead.fish'
  before=$(contents)
  as "$user" runahead enable > "$folder/said" 2>&1 && bad "a file of the user's is overwritten"
  as "$user" runahead disable > "$folder/said" 2>&1
  same "the home of who has a file of that name" "$(contents)" "$before"
  as "$user" sh -c 'rm .config/fish/conf.d/runahead.fish .profile .bash_login; ln -s /nowhere/profile .profile'
  before=$(contents)
  as "$user" runahead enable > "$folder/said" 2>&1 && bad "a link to nothing is overwritten"
  same "lines said" "$(wc -l < "$folder/said")" 1
  same "the home with a link to nothing" "$(contents)" "$before"
  # A home that is full.
  mount -t tmpfs -o "size=24k,uid=$other,gid=$other" none "$folder/$other" || die "no mount"
  echo '# mine' > "$folder/$other/.profile"
  chown "$other:$other" "$folder/$other/.profile"
  head -c 100000 /dev/zero > "$folder/$other/fill" 2> /dev/null
  as "$other" runahead enable > "$folder/said" 2>&1 && bad "nothing could be written"
  same "lines said" "$(wc -l < "$folder/said")" 1
  same "a full home" "$(cd "$folder/$other" && find . | sort | tr '\n' ' '; cat "$folder/$other/.profile")" ". ./.profile ./fill # mine"
  umount "$folder/$other"
  # What everybody loads is root's alone.
  mkdir "$folder/second"
  cp "$parts"/{runahead,runahead-host,runahead-tools,runahead-speculator,librunahead_agent.so} "$folder/second"
  chown "$user" "$folder/second/librunahead_agent.so"
  cp -a /etc "$folder/etc"
  mount --bind "$folder/etc" /etc || die "no mount"
  mkdir "$folder/root"
  HOME=$folder/root "$folder/second/runahead" enable --system > "$folder/said" 2>&1 && bad "everybody loads what a user may change"
  HOME=$folder/root "$folder/second/runahead" enable > "$folder/said" 2>&1 && bad "root loads what a user may change"
  same "lines said" "$(wc -l < "$folder/said")" 1
  # An administrator's own file is not the package's to remove.
  echo 'alias r=runahead' > /etc/profile.d/runahead.sh
  HOME=$folder/root "$parts/runahead" disable --system > /dev/null 2>&1
  [ -e /etc/profile.d/runahead.sh ] || bad "an administrator's file is removed"
  umount /etc
  ;;
twice)
  enabled
  first=$(session)
  enabled
  is_over "$first" || bad "the first host lives on"
  same "lines" "$(grep -c 'runahead enable' "$folder/$user/.profile")" 1
  same "hosts" "$(left "$user" | grep -c 'serve')" 1
  # Many shells at once start one host.
  kill -9 "$(session)"
  for n in 1 2 3 4 5 6; do login "$user" true & done
  wait
  same "hosts of many shells" "$(left "$user" | grep -c 'serve')" 1
  same "they run beside it" "$(login "$user" "$joined")" 1
  as "$user" runahead disable > /dev/null
  same "processes" "$(left "$user")" ""
  ;;
versions)
  # Another installation takes over, and the first one goes.
  mkdir "$folder/second"
  cp "$parts"/{runahead,runahead-host,runahead-tools,runahead-speculator,librunahead_agent.so} "$folder/second"
  enabled
  first=$(session)
  as "$user" "$folder/second/runahead" enable > "$folder/said" 2>&1 || bad "$(cat "$folder/said")"
  is_over "$first" || bad "the first host lives on"
  same "its programs" "$(login "$user" "$joined; ls /nowhere 2>&1; expr 1 + 1")" "1
ls: cannot access '/nowhere': No such file or directory
2"
  # A run of the one among the programs of the other has its own agent and no other.
  same "a run's agents" "$(login "$user" "$parts/runahead run -- cat /proc/self/maps | grep -o '[^ ]*runahead_agent.so' | sort -u")" "$parts/librunahead_agent.so"
  # The first one's agent beside the second one's host.
  same "a shell from before" "$(as "$user" env "LD_PRELOAD=$parts/librunahead_agent.so" RUNAHEAD_SESSION=enabled bash -c "cat $folder/data/1 | md5sum")" "$(md5sum < "$folder/data/1")"
  # It is replaced: the host begins anew, as the same process.
  second=$(session)
  before=$(cat "$place/session")
  cp "$parts/librunahead_agent.so" "$folder/second/new"
  mv "$folder/second/new" "$folder/second/librunahead_agent.so"
  changed() { [ -e "$place/session" ] && [ "$(cat "$place/session")" != "$before" ]; }
  until_so changed || bad "the host goes on with what was replaced"
  same "the host" "$(session)" "$second"
  same "its programs" "$(login "$user" "$joined")" 1
  # It is removed: shells start as if nothing had been, and the host ends.
  rm -r "$folder/second"
  until_so is_over "$second" || bad "the host lives on without its files"
  same "a new shell" "$(login "$user" 'env | grep -e LD_PRELOAD -e RUNAHEAD; ls /nowhere; expr 1 + 1' 2>&1)" "ls: cannot access '/nowhere': No such file or directory
2"
  as "$user" runahead disable > /dev/null || bad "disable"
  same "the home" "$(state)" ". 755 $user d"
  ;;
broken)
  # An agent that is none: logins do without it.
  mkdir "$folder/second"
  cp "$parts"/{runahead,runahead-host,runahead-tools,runahead-speculator,librunahead_agent.so} "$folder/second"
  as "$user" "$folder/second/runahead" enable > "$folder/said" 2>&1 || bad "$(cat "$folder/said")"
  for cut in 0 100 5000; do
    head -c "$cut" "$parts/librunahead_agent.so" > "$folder/second/new"
    chmod 755 "$folder/second/new"
    mv "$folder/second/new" "$folder/second/librunahead_agent.so"
    same "cut to $cut" "$(login "$user" 'expr 1 + 1; sh -c "exit 5"; echo $?' 2>&1)" "2
5"
  done
  # Nor does a command that is none do for one, as a disk leaves it that has lost its power.
  for part in runahead-tools librunahead_agent.so; do
    : > "$folder/second/new"
    chmod 755 "$folder/second/new"
    mv "$folder/second/new" "$folder/second/$part"
  done
  same "both empty" "$(login "$user" 'expr 1 + 1; sh -c "exit 5"; echo $?' 2>&1)" "2
5"
  as "$user" runahead disable > /dev/null || bad "disable"
  same "the home" "$(state)" ". 755 $user d"
  ;;
killed)
  enabled
  for round in 1 2 3; do
    host=$(session)
    login "$user" "for n in \$(seq 40); do cat $folder/data/* | md5sum; sleep 0.02; done" > "$folder/out" 2>&1 &
    sleep 0.4
    cold
    kill -9 "$host"
    wait $!
    same "programs whose host is killed" "$(sort -u "$folder/out")" "$(cat "$folder"/data/* | md5sum)"
    same "their number" "$(wc -l < "$folder/out")" 40
    # Nobody is beside a host that is gone, and nobody says anything.
    same "plainly" "$(as "$user" env $(as "$user" runahead enable --print-env) bash -c "$joined; expr 1 + 1" 2>&1)" "0
2"
    # Who looks whether there is one, as this does for a while, keeps nobody from beginning.
    flock --shared --nonblock "$place/lock" sleep 0.3 &
    login "$user" true
    is_other "$host" || bad "no new host"
    wait $!
  done
  ;;
stopped)
  # Of programs whose files nobody knows one waits for a host that stands still, and no other.
  enabled
  host=$(session)
  as "$user" env $(as "$user" runahead enable --print-env) bash -c 'expr 1 + 1' > "$folder/out"
  for n in 1 2 3 4 5 6 7 8; do cp /usr/bin/expr "$folder/unknown-$n"; done
  kill -STOP "$host"
  begin=$(date +%s)
  beside=$(as "$user" env $(as "$user" runahead enable --print-env) \
    bash -c 'for n in 1 2 3 4 5 6 7 8; do "$1/unknown-$n" $n + 1; done' bash "$folder" 2>&1)
  end=$(date +%s)
  kill -CONT "$host"
  same "programs beside a host that stands still" "$beside" "$(seq 2 9)"
  [ $((end - begin)) -le 5 ] || bad "eight programs took $((end - begin)) s"
  ;;
reboot)
  # What a host has left behind means other processes, and others' folders mean nothing.
  enabled
  before=$(cat "$place/session")
  host=$(session)
  kill -9 "$host"
  sleep 100 &
  sed -i "1s/^[0-9]*/$!/" "$place/session"
  same "another process with its number" "$(as "$user" env $(as "$user" runahead enable --print-env) bash -c "$joined" 2>&1)" 0
  kill $!
  for garbage in '' 'end' "$before$before" "$(head -c 3000 /dev/zero | tr '\0' 9)" '1:2:3'; do
    printf '%s\n' "$garbage" > "$place/session"
    same "garbage" "$(as "$user" env $(as "$user" runahead enable --print-env) bash -c "$joined" 2>&1)" 0
  done
  login "$user" true
  # Where there is no folder of the login manager's for another user, one that somebody has made for him is
  # not believed.
  mkdir -m 755 "/var/tmp/runahead-$other"
  chown "$user" "/var/tmp/runahead-$other"
  as "$user" cp "$place/session" "/var/tmp/runahead-$other/session"
  same "another's folder" "$(as "$other" env $(as "$user" runahead enable --print-env) bash -c "$joined" 2>&1)" 0
  as "$other" runahead enable > "$folder/said" 2>&1 && bad "a host begins in another's folder"
  same "lines said" "$(wc -l < "$folder/said")" 1
  same "nothing is changed" "$(find "$folder/$other" -mindepth 1)" ""
  rm -r "/var/tmp/runahead-$other"
  # A folder that others may write to.
  chmod 777 "$place"
  same "a folder for all" "$(login "$user" "$joined" 2>&1)" 0
  chmod 700 "$place"
  same "a folder of ours" "$(login "$user" "$joined" 2>&1)" 1
  chown "$other" "$place/session"
  same "a file of another's" "$(as "$user" env $(as "$user" runahead enable --print-env) bash -c "$joined" 2>&1)" 0
  ;;
users)
  # Root's environment in another user's processes: each has his own host, or none.
  enabled
  variables=$(as "$user" runahead enable --print-env)
  same "root has none" "$(env $variables bash -c "$joined" 2>&1)" 0
  same "another user has none" "$(as "$other" env $variables bash -c "$joined; id -u" 2>&1)" "0
$other"
  same "from root to the user (su)" "$(env $variables setpriv --reuid="$user" --regid="$user" --clear-groups bash -c "$joined" 2>&1)" 1
  HOME=$folder/root
  export HOME
  mkdir "$HOME"
  "$parts/runahead" enable > "$folder/said" 2>&1 || bad "root: $(cat "$folder/said")"
  same "root has one" "$(env $variables bash -c "$joined" 2>&1)" 1
  roots=$(cut -d: -f1 /var/tmp/runahead-0/session | head -n 1)
  same "the user has another" "$(env $variables setpriv --reuid="$user" --regid="$user" --clear-groups bash -c "$joined" 2>&1)" 1
  [ "$roots" != "$(session)" ] || bad "both have the same host"
  same "other rights" "$(as "$user" env $variables setpriv --nnp bash -c "cat $folder/data/1 | md5sum" 2>&1)" "$(md5sum < "$folder/data/1")"
  cp /usr/bin/id "$folder/id"
  chown "$other" "$folder/id"
  chmod 4755 "$folder/id"
  same "setuid" "$(login "$user" "$folder/id -u; $folder/id -ru")" "$other
$user"
  as "$user" runahead disable > /dev/null
  same "root's stays" "$(env $variables bash -c "$joined" 2>&1)" 1
  "$parts/runahead" disable > /dev/null
  until_so is_over "$roots" || bad "root's host lives on"
  same "root's home" "$(find "$HOME" -mindepth 1)" ""
  ;;
logout)
  enabled
  host=$(session)
  login "$user" "sleep 3; expr 1 + 1; $joined" > "$folder/out" 2>&1 &
  sleep 0.5
  # As logind does it where nobody stays; whoever stays goes on.
  rm -r "/run/user/$user"
  until_so is_over "$host" || bad "the host lives on"
  wait $!
  same "who stays" "$(cat "$folder/out")" "2
0"
  # Where the host is all that stays of a login, that is to be over.
  mkdir -m 700 "/run/user/$user"
  chown "$user:$user" "/run/user/$user"
  mkdir -p /run/systemd
  mount -t tmpfs none /run/systemd || die "no mount"
  login "$user" true
  host=$(session)
  [ -n "$host" ] || bad "no host"
  mkdir /run/systemd/users
  echo STATE=closing > "/run/systemd/users/$user"
  until_so is_over "$host" || bad "the host keeps the login"
  umount /run/systemd
  rmdir /run/systemd 2> /dev/null
  rm -r "/run/user/$user"
  # Cron: no login. The folder that stays is used.
  same "cron before there is a host" "$(as "$user" env $(as "$user" runahead enable --print-env) sh -c "$joined" 2>&1)" 0
  as "$user" runahead serve || bad "serve"
  same "cron" "$(as "$user" env $(as "$user" runahead enable --print-env) sh -c "$joined" 2>&1)" 1
  as "$user" runahead disable > /dev/null
  same "processes" "$(left "$user")" ""
  same "what stays" "$(ls -A /var/tmp/runahead-$user 2>/dev/null | grep -v sites)" ""
  ;;
chosen)
  enabled --except 'gre*'
  same "left out" "$(login "$user" "$joined")" 0
  same "not left out" "$(login "$user" "sed -n '/runahead-session/p' /proc/self/maps | sed -n 1p | wc -l")" 1
  cp /usr/bin/grep "$folder/dpkg-grep"
  same "left out anyway" "$(login "$user" "$folder/dpkg-$joined")" 0
  enabled --only grep --only 'dpkg-*'
  same "meant" "$(login "$user" "$joined")" 1
  same "meant though left out else" "$(login "$user" "$folder/dpkg-$joined")" 1
  same "not meant" "$(login "$user" "sed -n '/runahead-session/p' /proc/self/maps | wc -l")" 0
  printf '#!/usr/bin/python3 -S\nprint("runahead-session" in open("/proc/self/maps").read())\n' > "$folder/script"
  chmod 755 "$folder/script"
  same "limits" "$(login "$user" "(ulimit -f 0; grep -c x $folder/data/1 >/dev/null; echo \$?); for n in 1 2 3 4 5 6 7 8 9 10 11 12; do (ulimit -f 0; expr \$n - \$n); (ulimit -s 40; expr 1); done | sort | uniq -c")" "$(as "$user" bash -c "(ulimit -f 0; grep -c x $folder/data/1 >/dev/null; echo \$?); for n in 1 2 3 4 5 6 7 8 9 10 11 12; do (ulimit -f 0; expr \$n - \$n); (ulimit -s 40; expr 1); done | sort | uniq -c")"
  same "a script" "$(login "$user" "$folder/script")" False
  enabled --only script
  same "a script by its name" "$(login "$user" "$folder/script")" True
  enabled --only 'python3*'
  same "a script by its interpreter" "$(login "$user" "$folder/script")" True
  for wrong_one in 'a/b' ''; do
    as "$user" runahead enable --only "$wrong_one" > "$folder/said" 2>&1 && bad "'$wrong_one' is taken"
    same "lines said" "$(wc -l < "$folder/said")" 1
  done
  same "what was there stays" "$(login "$user" "$folder/script")" True
  ;;
refused)
  # One line each, and nothing is changed.
  check() {
    local name=$1 said
    shift
    said=$("$@" 2>&1) && bad "$name: it is done: $said"
    same "$name: lines of '$said'" "$(printf '%s\n' "$said" | wc -l)" 1
    same "$name: the home" "$(find "$folder/$user" -mindepth 1)" ""
    same "$name: processes" "$(left "$user")" ""
  }
  check "not root" as "$user" runahead enable --system
  check "no home" as "$user" env -u HOME runahead enable
  check "another's home" as "$user" env HOME="$folder/$other" runahead enable
  check "little memory" as "$user" prlimit --as=200000000 runahead enable
  check "no files" as "$user" prlimit --fsize=1000 runahead enable
  mkdir "$folder/$user/.profile"
  said=$(as "$user" runahead enable 2>&1) && bad "a folder in the place of a file"
  same "lines of '$said'" "$(printf '%s\n' "$said" | wc -l)" 1
  rmdir "$folder/$user/.profile"
  mount -t tmpfs -o "ro,uid=$user" none "$folder/$user"
  check "a home that is read-only" as "$user" runahead enable
  ;;
system)
  # Everybody's, in an `/etc` of its own.
  cp -a /etc "$folder/etc"
  mount --bind "$folder/etc" /etc || die "no mount"
  list() { (cd /etc && find . -printf '%p %m %u\n' | sort; cat /etc/profile.d/* /etc/zsh/zprofile | md5sum) 2>/dev/null; }
  before=$(list)
  HOME=$folder/root
  export HOME
  mkdir "$HOME"
  "$parts/runahead" enable --system --except sed > "$folder/said" 2>&1 || bad "$(cat "$folder/said")"
  for number in "$user" "$other"; do
    same "a user who logs in" "$(login "$number" "$joined")" 1
    same "left out" "$(login "$number" "sed -n '/runahead-session/p' /proc/self/maps | wc -l")" 0
    for shell in zsh fish; do
      command -v "$shell" > /dev/null || continue
      same "$shell" "$(as "$number" "$shell" -lc 'echo $RUNAHEAD_SESSION' 2>&1 < /dev/null)" enabled
    done
  done
  same "hosts" "$(left "$user" | grep -c serve) $(left "$other" | grep -c serve)" "1 1"
  as "$user" runahead disable 2>&1 | grep -q 'on for everybody' || bad "a user is not told that it stays on"
  same "it stays on" "$(login "$user" "$joined")" 1
  as "$user" runahead status > "$folder/said" || bad "status: $(cat "$folder/said")"
  "$parts/runahead" disable --system > "$folder/said" 2>&1 || bad "$(cat "$folder/said")"
  same "/etc" "$(diff <(echo "$before") <(list))" ""
  same "root's home" "$(find "$HOME" -mindepth 1)" ""
  same "who logs in now" "$(as "$user" bash -lc 'echo $RUNAHEAD_SESSION')" ""
  as "$user" runahead disable > /dev/null
  as "$other" runahead disable > /dev/null
  same "processes" "$(left "$user")$(left "$other")" ""
  umount /etc
  ;;
services)
  # Where the machine has systemd: a unit of the user's service manager.
  [ -d /run/systemd ] || { mkdir /run/systemd; made=1; }
  mount -t tmpfs none /run/systemd || die "no mount"
  mkdir /run/systemd/system
  enabled
  unit=$folder/$user/.config/systemd/user/runahead-enabled.service
  [ -L "$folder/$user/.config/systemd/user/default.target.wants/runahead-enabled.service" ] || bad "it is not wanted"
  if command -v systemd-analyze > /dev/null; then
    same "the unit" "$(systemd-analyze verify --man=no "$unit" 2>&1 | grep -i runahead)" ""
  fi
  # Nothing there would ask whether the agent's file is still to be had.
  same "environment.d" "$(ls "$folder/$user/.config/environment.d" 2> /dev/null)" ""
  # What the unit runs waits for the one that is there, and is its successor.
  line=$(sed -n 's/^ExecStart=//p' "$unit")
  as "$user" bash -c "exec $line" &
  sleep 0.5
  same "hosts and who waits" "$(left "$user" | grep -c serve)" 2
  first=$(session)
  kill "$first"
  until_so is_other "$first" || bad "nobody follows"
  same "the successor serves" "$(as "$user" env $(as "$user" runahead enable --print-env) bash -c "$joined")" 1
  as "$user" runahead disable > /dev/null
  same "the home" "$(state)" ". 755 $user d"
  same "processes" "$(left "$user")" ""
  wait
  umount /run/systemd
  [ -z "${made-}" ] || rmdir /run/systemd
  ;;
container)
  # Nobody has logged in, and the first process is what was meant.
  rm -r "/run/user/$user"
  said=$(as "$user" unshare --user --map-current-user --pid --mount --fork --mount-proc sh -c \
    "runahead serve; export \$(runahead enable --print-env); bash -c '$joined; cat $folder/data/1 | md5sum; ps -o comm= | sort -u | grep -c nowhere'" 2>&1)
  same "beside a host" "$said" "1
$(md5sum < "$folder/data/1")
0"
  same "processes" "$(left "$user")" ""
  ;;
many)
  # RUNAHEAD_PROCESSES processes in all; of some of them each waits for the disk.
  count=${RUNAHEAD_PROCESSES:-1500}
  enabled
  host=$(session)
  login "$user" "cat $folder/data/1" > /dev/null
  grown() { echo "$(ls "/proc/$host/fd" | wc -l) $(awk '/^Threads/ {print $2}' "/proc/$host/status") $(awk '/^VmRSS/ {print $2}' "/proc/$host/status")"; }
  waits='import os, sys
for name in os.listdir(sys.argv[1]):
    file = os.open(sys.argv[1] + "/" + name, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    while os.read(file, 4096): pass'
  login "$user" "for n in 1 2 3 4 5 6 7 8 9 10; do python3 -S -c '$waits' $folder/data; done"
  sleep 3
  before=$(grown)
  login "$user" "for n in \$(seq $((count / 5))); do expr \$n + 1 > /dev/null; sh -c : ; cat < $folder/data/1 > /dev/null; true | tee /dev/null; python3 -S -c '$waits' $folder/data; done"
  # More at once than there are slots.
  login "$user" "for n in \$(seq 300); do sh -c 'cat $folder/data/1; sleep 1' > /dev/null & done; wait"
  sleep 3
  after=$(grown)
  echo "$before, then $after" > "$folder/grown"
  same "the host" "$(session)" "$host"
  same "it serves" "$(login "$user" "$joined")" 1
  read -r fds threads memory <<< "$before"
  read -r fds_after threads_after memory_after <<< "$after"
  [ "$fds_after" -le $((fds + 8)) ] && [ "$threads_after" -le $((threads + 8)) ] && [ "$memory_after" -le $((memory + 3000)) ] \
    || bad "descriptors, threads, kB: $before, then $after"
  slots=$(as "$user" runahead status | grep -c host)
  same "status" "$slots" 1
  ;;
*)
  die "no situation '$situation'"
  ;;
esac

as "$user" runahead disable > "$folder/said" 2>&1 || bad "disable at the end: $(cat "$folder/said")"
until_so test -z "$(left "$user")" || bad "processes: $(left "$user")"
left "$user" | awk '{print $1}' | xargs -r kill -9
[ "$wrong" = 0 ]
