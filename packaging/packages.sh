#!/usr/bin/env bash
# ./x packages [--check]: packages of what ./x build has left, in target/packages: .deb, .rpm, a tarball that
# may lie anywhere, and a Python wheel. Nobody who installs one needs Rust. --check installs and uses each in
# a root of its own.
#
# Called by ./x, which has built and brings the tools.
set -euo pipefail
cd "$(dirname "$0")/.."

OUT=$PWD/target/packages
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
MACHINE=$(uname -m)
# Above that a package has something in it that does not belong there.
MOST_BYTES=$((5 << 20))

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
die() { printf './x packages: %s\n' "$*" >&2; exit 1; }

# stage FOLDER PREFIX: what ./x install installs but for the compiler, stripped. Without the library for
# static linking, which is five times as large as all else, and is for who builds from source.
stage() {
  rm -rf "$1"
  DESTDIR=$1 ./x install --only=core --prefix "$2"
  rm "$1$2/lib/librunahead.a"
  strip --strip-unneeded "$1$2/lib/librunahead.so" "$1$2"/lib/runahead/*
}

# The same sources make the same packages.
epoch() { git log -1 --format=%ct 2>/dev/null || date +%s; }

# The oldest C library that the library for hints finds all of its functions in; all else needs none.
least_glibc() {
  objdump -T target/release/librunahead.so | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1
}

copyright() {
  printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n'
  printf 'Copyright: %s\nLicense: MIT\n' "$(sed -n 's/^Copyright (c) //p' LICENSE)"
  sed -n '/^Permission/,$p' LICENSE | sed 's/^$/./; s/^/ /'
}

deb() {
  local root=$OUT/deb-root doc date arch
  arch=$(dpkg --print-architecture)
  doc=$root/usr/share/doc/runahead
  date=$(date -R -u -d "@$(epoch)")
  stage "$root" /usr
  gzip -9n "$root"/usr/share/man/man1/*.1
  # Libraries are not executed, as Debian has it.
  chmod 644 "$root/usr/lib/librunahead.so" "$root/usr/lib/runahead/librunahead_agent.so"
  # Debian keeps zsh's there.
  mkdir -p "$root/usr/share/zsh/vendor-completions" "$doc" "$root/usr/share/lintian/overrides" "$root/DEBIAN"
  mv "$root/usr/share/zsh/site-functions/_runahead" "$root/usr/share/zsh/vendor-completions/_runahead"
  rmdir "$root/usr/share/zsh/site-functions"
  copyright > "$doc/copyright"
  printf 'runahead (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md in the sources.\n\n -- The Runahead authors <runahead@localhost.localdomain>  %s\n' \
    "$VERSION" "$date" | gzip -9n > "$doc/changelog.gz"
  cp packaging/lintian-overrides "$root/usr/share/lintian/overrides/runahead"
  cp packaging/postinst packaging/prerm "$root/DEBIAN/"
  echo "activate-noawait ldconfig" > "$root/DEBIAN/triggers"
  sed -e "s/@VERSION@/$VERSION/; s/@ARCH@/$arch/; s/@GLIBC@/$(least_glibc)/" \
    -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f 1)/" packaging/control > "$root/DEBIAN/control"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
  chmod -R u+rwX,go+rX,go-w "$root"
  chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
  SOURCE_DATE_EPOCH=$(epoch) dpkg-deb --root-owner-group -Zxz --build "$root" "$OUT/runahead_${VERSION}_$arch.deb" >/dev/null
  rm -rf "$root"
}

rpm_package() {
  local root=$OUT/rpm-root top=$OUT/rpm-top
  stage "$root" /usr
  mkdir -p "$top"
  # Our files are what ./x install makes: nothing is compiled, stripped or looked through there.
  rpmbuild -bb --quiet --target "$MACHINE" --define "_topdir $top" --define "_rpmdir $OUT" --define "stage $root" \
    --define "version_of_ours $VERSION" --define "glibc $(least_glibc)" --define "__os_install_post %{nil}" \
    --define "_build_id_links none" --define "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm" \
    --define "license_file $PWD/LICENSE" packaging/runahead.spec >"$OUT/rpm.log" 2>&1 || { cat "$OUT/rpm.log" >&2; return 1; }
  rm -rf "$root" "$top" "$OUT/rpm.log"
}

tarball() {
  local name=runahead-$VERSION-$MACHINE root=$OUT/tar-root
  stage "$root" "/$name"
  # A service's file says where the command is, which nobody knows here.
  rm -r "$root/$name/lib/systemd"
  sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$root/$name/lib/pkgconfig/runahead.pc"
  cp LICENSE packaging/README.tarball "$root/$name/"
  mv "$root/$name/README.tarball" "$root/$name/README"
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(epoch)" -C "$root" -c "$name" | gzip -9n > "$OUT/$name.tar.gz"
  rm -rf "$root"
}

wheel() {
  local root=$OUT/wheel-root
  ./x wheel
  stage "$root" /prefix
  python3 packaging/wheel.py target/wheels/runahead-*.whl "$root/prefix" "$(least_glibc)" "$OUT"
  rm -rf "$root"
}

sizes() {
  local file bytes
  for file in "$OUT"/*.deb "$OUT"/*.rpm "$OUT"/*.tar.gz "$OUT"/*.whl; do
    bytes=$(stat -c %s "$file")
    printf '%9d  %s\n' "$bytes" "${file##*/}"
    [ "$bytes" -le "$MOST_BYTES" ] || die "${file##*/} has $bytes bytes"
  done
}

# used COMMAND...: the runahead that these words lead to says its version, finds its parts, and helps a
# command.
used() {
  local said
  "$@" --version | grep -q "^runahead $VERSION (commit " || die "$*: no version"
  said=$("$@" run --verbose --stats -- cksum /etc/hostname 2>&1) || die "$* run: $said"
  case "$said" in
    *plainly*) die "$* runs plainly: $said" ;;
    *"runahead: took"*) ;;
    *) die "$* tells nothing: $said" ;;
  esac
}

# A root of a Debian that has nothing but what every one has; made once.
clean_root() {
  local kept=$OUT/../packages-root.tar
  [ -s "$kept" ] || say "a Debian of its own, which takes some minutes the first time"
  [ -s "$kept" ] || mmdebstrap --quiet --variant=essential --include=python3-venv "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$kept"
  mkdir -p "$1"
  tar -C "$1" -xf "$kept"
  echo clean > "$1/etc/hostname"
}

# inside ROOT COMMAND...: there, with its own /proc and nothing of ours mounted afterwards.
inside() {
  local root=$1
  shift
  unshare --mount --pid --fork sh -c 'root=$1; shift; mount -t proc proc "$root/proc"; mount -t tmpfs none "$root/tmp"; exec chroot "$root" "$@"' sh "$root" "$@"
}

check() {
  local root=$OUT/../packages-check deb place
  trap 'rm -rf "$OUT/../packages-check"' EXIT
  [ "$(id -u)" = 0 ] || die "a root of its own takes root"
  deb=$(echo "$OUT"/*.deb)
  say "lintian"
  lintian --fail-on error --suppress-tags bad-distribution-in-changes-file "$deb"
  say "the .deb, in a Debian of its own"
  rm -rf "$root" && clean_root "$root"
  cp "$deb" "$root/package.deb"
  inside "$root" dpkg -i /package.deb >/dev/null
  [ -s "$root/usr/lib/runahead/runahead-sites" ] && [ -s "$root/usr/lib/runahead/runahead-sites-here" ] || die "the .deb did not look at the machine's programs"
  used inside "$root" runahead
  inside "$root" dpkg -r runahead >/dev/null
  [ ! -e "$root/usr/bin/runahead" ] && [ ! -e "$root/usr/lib/runahead" ] || die "the .deb leaves something behind"
  say "the .rpm, in the same"
  cp "$OUT"/*.rpm "$root/package.rpm"
  # Debian's database of packages is another, so what it needs is looked at apart.
  rpm --root "$root" --initdb
  rpm --root "$root" --nodeps -i "$root/package.rpm"
  rpm -qp --requires "$root/package.rpm" | grep -q "libc.so.6(GLIBC_" || die "the .rpm does not say what it needs"
  used inside "$root" runahead
  rpm --root "$root" -e --nodeps runahead
  [ ! -e "$root/usr/bin/runahead" ] && [ ! -e "$root/usr/lib/runahead" ] || die "the .rpm leaves something behind"
  say "the tarball, in an empty folder"
  for place in "$root/opt/somewhere/else" "$root/srv"; do
    mkdir -p "$place" && tar -C "$place" -xzf "$OUT"/*.tar.gz
    used inside "$root" "${place#"$root"}/runahead-$VERSION-$MACHINE/bin/runahead"
  done
  say "the wheel, in a venv"
  cp "$OUT"/*.whl "$root/"
  inside "$root" python3 -m venv /venv
  inside "$root" sh -c '/venv/bin/pip install --quiet --no-index /*.whl'
  used inside "$root" /venv/bin/runahead
  inside "$root" /venv/bin/python3 -c 'import runahead' || die "the wheel brings no module"
  inside "$root" /venv/bin/pip uninstall --quiet --yes runahead
  [ ! -e "$root/venv/bin/runahead" ] && [ ! -e "$root/venv/lib/runahead/runahead-speculator" ] || die "the wheel leaves something behind"
  say "all packages are well"
}

rm -rf "$OUT"
mkdir -p "$OUT"
deb
rpm_package
tarball
wheel
sizes
[ "${1:-}" != --check ] || check
