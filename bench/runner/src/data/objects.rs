//! Something real to link: GNU objdump with its libraries for all targets, some 490 objects with -g.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::Maker;

/// Builds in `objects.build` beside the set, so that an interrupted build goes on where it was.
pub fn binutils(maker: &Maker) -> Result<()> {
    let package = maker.package("binutils-source")?;
    let build = maker.beside("build");
    fs::create_dir_all(&build)?;
    let compile = r#"
        cd "$2"
        if [ ! -e unpacked ]; then
            dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards './usr/src/binutils/binutils-*.tar.xz' |
                xz -dc | tar -x --strip-components=1
            touch unpacked
        fi
        if [ ! -e configured ]; then
            ./configure --enable-targets=all --disable-shared --disable-nls --disable-werror --without-zstd \
                --disable-gdb --disable-gdbserver --disable-gdbsupport --disable-sim --disable-gprof \
                --disable-gprofng --disable-gold --disable-ld --disable-gas CFLAGS='-g -O1' MAKEINFO=true
            touch configured
        fi
        nice make -j"$(nproc)" MAKEINFO=true all-bfd all-opcodes all-libctf configure-binutils
        nice make -C binutils MAKEINFO=true objdump
    "#;
    maker.shell(compile, &[&package, &build])?;
    let collect = r#"
        here=$PWD
        cd "$1"
        for object in $(find bfd opcodes -name '*.o' | sort); do
            cp "$object" "$here/$(echo "$object" | tr / -)"
        done
        for object in objdump dwarf prdbg debug stabs rddbg rdcoff od-xcoff demanguse bucomm version filemode elfcomm; do
            cp "binutils/$object.o" "$here/binutils-$object.o"
        done
        cp libctf/.libs/libctf.a libsframe/.libs/libsframe.a libiberty/libiberty.a zlib/libz.a "$here/"
        libraries=$(dirname "$(gcc -print-file-name=crt1.o)")
        compiler=$(dirname "$(gcc -print-libgcc-file-name)")
        cp "$libraries/crt1.o" "$libraries/crti.o" "$libraries/crtn.o" "$here/"
        cp "$compiler/crtbegin.o" "$compiler/crtend.o" "$compiler/libgcc.a" "$here/"
    "#;
    maker.shell(collect, &[&build])?;
    list(maker, "objects", 480)?;
    fs::remove_dir_all(build)?;
    Ok(())
}

/// The set's list; it must have so many objects at least.
fn list(maker: &Maker, set: &str, least: usize) -> Result<()> {
    let mut names: Vec<String> = fs::read_dir(maker.partial())?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| format!("{set}/{name}"))
        .collect();
    names.sort();
    let objects = names.iter().filter(|name| name.ends_with(".o")).count();
    ensure!(objects >= least, "only {objects} objects came out of the build, {least} are wanted");
    fs::write(maker.beside("files"), names.join("\n") + "\n")?;
    Ok(())
}

/// The papers' kernel had 562 objects.
const PAPERS_OBJECTS: usize = 562;

/// As many objects as the papers linked, and about as many bytes: the set `objects`, more of them out of
/// its archives (what is left of these stays in them), every other one without debugging information.
pub fn as_many_as_the_papers(maker: &Maker) -> Result<()> {
    let script = r#"
        cp "$1"/* .
        for archive in libiberty libctf libz; do
            mkdir "$archive.members"
            ( cd "$archive.members" && ar x "../$archive.a" )
            for member in "$archive.members"/*.o; do mv "$member" "$archive-$(basename "$member")"; done
            rmdir "$archive.members"
        done
        ( ls bfd-*.o binutils-*.o opcodes-*.o; ls lib*-*.o ) > all
        tail -n "+$(($2 + 1))" all | xargs -r rm
        head -n "$2" all | awk 'NR % 2' | xargs -n 50 strip --strip-debug
        rm all
    "#;
    let count = PAPERS_OBJECTS.to_string();
    maker.shell(script, &[&maker.root.join("objects"), Path::new(&count)])?;
    list(maker, "objects-562", PAPERS_OBJECTS)
}
