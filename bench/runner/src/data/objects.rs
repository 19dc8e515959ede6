//! Something real to link: GNU objdump with its libraries for all targets, some 490 objects with -g.

use std::fs;

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
    let mut names: Vec<String> = fs::read_dir(maker.partial())?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| format!("objects/{name}"))
        .collect();
    names.sort();
    let objects = names.iter().filter(|name| name.ends_with(".o")).count();
    ensure!(objects >= 480, "only {objects} objects came out of the build, 480 are wanted");
    fs::write(maker.beside("files"), names.join("\n") + "\n")?;
    fs::remove_dir_all(build)?;
    Ok(())
}
