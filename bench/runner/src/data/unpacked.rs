//! Sets that are the contents of Debian packages, unpacked and not installed, so that they lie on the disk
//! under test.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Maker;
use crate::outputs;

/// Read out of `pocketsphinx-testdata`: 16-bit samples, 16,000 a second. The papers' recording had 18
/// seconds, these have 18.6 together.
const RECORDINGS: [&str; 4] = ["0870", "0880", "0890", "0930"];

/// The acoustic model, the language model and the dictionary; the recordings joined into one.
pub fn speech(maker: &Maker) -> Result<()> {
    let (model, recordings) = (maker.package("pocketsphinx-en-us")?, maker.package("pocketsphinx-testdata")?);
    let names = RECORDINGS.join(" ");
    // A wave file is a header of 44 bytes and the samples.
    let script = r#"
        dpkg-deb --fsys-tarfile "$1" | tar -x --strip-components=5 --wildcards './usr/share/pocketsphinx/model/*'
        mkdir unpacked
        dpkg-deb --fsys-tarfile "$2" | tar -x -C unpacked
        for name in $3; do
            tail -c +45 unpacked/usr/share/pocketsphinx/test/data/librivox/*-"$name".wav
        done > speech.raw
        rm -r unpacked
        [ -e en-us/en-us.lm.bin ]
    "#;
    maker.shell(script, &[&model, &recordings, Path::new(&names)])?;
    list(maker, "speech", |_| true)
}

const PYTHON_PACKAGES: [&str; 11] = [
    "python3-numpy",
    "python3-pandas",
    "python3-pandas-lib",
    "python3-dateutil",
    "python3-tz",
    "python3-six",
    "python3-pkg-resources",
    "libblas3",
    "liblapack3",
    "libgfortran5",
    "libquadmath0",
];

/// numpy, pandas and their libraries. The compiled modules are made to be believed without a look at their
/// sources' dates, which copying to another disk could change.
pub fn python(maker: &Maker) -> Result<()> {
    let packages = PYTHON_PACKAGES.map(|name| maker.package(name)).into_iter().collect::<Result<Vec<_>>>()?;
    let paths: Vec<&Path> = packages.iter().map(PathBuf::as_path).collect();
    let script = r#"
        for package in "$@"; do dpkg-deb --fsys-tarfile "$package" | tar -x --no-same-owner; done
        mv usr/lib/python3/dist-packages modules
        mkdir libraries
        find usr/lib -name '*.so*' -exec cp -P {} libraries/ ';'
        rm -rf usr
        find modules -name tests -type d -prune -exec rm -r {} +
        /usr/bin/python3 -m compileall -q -j0 --invalidation-mode unchecked-hash modules
    "#;
    maker.shell(script, &paths)?;
    list(maker, "python", |name| {
        [".pyc", ".so"].iter().any(|end| name.ends_with(end)) || name.contains(".so.")
    })
}

/// What the build below compiles with: libiberty's own switches, found out by its configure script.
const MAKEFILE: &str = "\
# Written by the bench. SOURCE is this directory; objects go to the current one.
OBJECTS := $(addsuffix .o,$(shell cat $(SOURCE)/objects))
libiberty.a: $(OBJECTS)
\tar rcD $@ $(OBJECTS)
%.o: $(SOURCE)/libiberty/%.c
\t$(CC) -c -DHAVE_CONFIG_H -O1 -w -I$(SOURCE)/configured -I$(SOURCE)/include -o $@ $<
";

/// Some sixty C files and their headers. The script is run once, here, for the list of objects and config.h.
pub fn library(maker: &Maker) -> Result<()> {
    let package = maker.package("binutils-source")?;
    let script = r#"
        mkdir unpacked
        dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards './usr/src/binutils/binutils-*.tar.xz' |
            xz -dc | tar -x -C unpacked --strip-components=1
        mkdir built configured
        ( cd built && ../unpacked/libiberty/configure && nice make )
        ( cd built && ls *.o ) | sed 's/\.o$//' > objects
        cp built/config.h configured/
        mkdir libiberty
        cp unpacked/libiberty/*.[ch] libiberty/
        cp -r unpacked/include include
        rm -rf unpacked built
    "#;
    maker.shell(script, &[&package])?;
    fs::write(maker.partial().join("Makefile"), MAKEFILE)?;
    list(maker, "library", |name| !name.ends_with("objects"))
}

/// The C compiler proper, a program of 33 MB.
pub fn compiler(maker: &Maker) -> Result<()> {
    let package = maker.package("cpp-12")?;
    let script = r#"
        dpkg-deb --fsys-tarfile "$1" | tar -x --no-same-owner --transform 's,.*/,,' --wildcards '*/cc1'
        [ -x cc1 ]
    "#;
    maker.shell(script, &[&package])?;
    list(maker, "compiler", |_| true)
}

/// Every file of the set that the workload may read.
fn list(maker: &Maker, set: &str, wanted: fn(&str) -> bool) -> Result<()> {
    let set_files = outputs::below(&maker.partial())?.into_iter();
    let names: Vec<String> = set_files
        .filter(|name| !maker.partial().join(name).is_dir())
        .map(|name| format!("{set}/{}", name.display()))
        .filter(|name| wanted(name))
        .collect();
    ensure!(!names.is_empty(), "nothing came out of the packages");
    fs::write(maker.beside("files"), names.join("\n") + "\n").context("cannot write the list of files")
}
