//! Reads object files in a linker's manner, in passes over all of them: first each one's header, section
//! table and symbols, whose places depend on what was just read; then, file by file, the contents of its
//! sections in the order of the table. Files are opened again for each pass, as GNU ld does beyond its limit
//! of open files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use bench_programs::Checksum;
use clap::Parser;

#[derive(Parser)]
#[command(about = "Read ELF object files in a linker's manner")]
struct Arguments {
    /// File with the names, one on each line; what is not named *.o is passed over
    list: PathBuf,
    /// Disclose the files beforehand, by Runahead's hint interface
    #[arg(long)]
    manual: bool,
}

/// A section, as far as reading goes.
struct Section {
    offset: u64,
    size: u64,
}

/// `sh_type` of sections without contents in the file, and of symbol tables.
const NOBITS: u32 = 8;
const SYMTAB: u32 = 2;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let list = std::fs::read_to_string(&arguments.list)
        .with_context(|| format!("cannot read the list {}", arguments.list.display()))?;
    let names: Vec<&str> = list.lines().filter(|name| name.ends_with(".o")).collect();
    ensure!(!names.is_empty(), "{} names no object file (*.o)", arguments.list.display());
    if arguments.manual {
        // Which parts of a file are needed is not known yet, but in the end it is nearly all.
        runahead_hints::Batch::new().extend(names.iter().map(|name| (name, 0, 0))).send();
    }
    let mut checksum = Checksum::default();
    let mut all = Vec::new();
    for name in &names {
        all.push(table(name, &mut checksum).with_context(|| format!("in {name}"))?);
    }
    let mut bytes = 0;
    for (name, sections) in names.iter().zip(&all) {
        let file = File::open(name)?;
        for section in sections {
            let mut contents = vec![0; section.size as usize];
            file.read_exact_at(&mut contents, section.offset).with_context(|| format!("in {name}"))?;
            checksum.add(&contents);
            bytes += section.size;
        }
    }
    println!("{} files, {bytes} bytes, checksum {:016x}", names.len(), checksum.value());
    Ok(())
}

/// The sections of a 64-bit ELF file; its symbol tables are read at once.
fn table(name: &str, checksum: &mut Checksum) -> Result<Vec<Section>> {
    let file = File::open(name)?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    ensure!(header.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let (offset, size, count) =
        (number(&header[40..48]), number(&header[58..60]) as usize, number(&header[60..62]) as usize);
    ensure!(size >= 64, "section headers of {size} bytes");
    let mut headers = vec![0; size * count];
    file.read_exact_at(&mut headers, offset)?;
    let mut sections = Vec::new();
    for header in headers.chunks_exact(size) {
        let kind = number(&header[4..8]) as u32;
        let section = Section { offset: number(&header[24..32]), size: number(&header[32..40]) };
        if kind == SYMTAB {
            let mut symbols = vec![0; section.size as usize];
            file.read_exact_at(&mut symbols, section.offset)?;
            checksum.add(&symbols);
        } else if kind != NOBITS && kind != 0 {
            sections.push(section);
        }
    }
    Ok(sections)
}
