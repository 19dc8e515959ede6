//! A matrix times a vector, the matrix too large for the memory: MATVEC of the compiler papers.
//!
//! The matrix is a mapped file of 32-bit floats, or memory that the program fills first and that then
//! has to go to swap. There is no system call in the hot phase: what it waits for are page faults.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use bench_programs::{Checksum, scramble};
use clap::Parser;

#[derive(Parser)]
#[command(about = "Multiply a large matrix by a vector, and print a checksum of the products")]
struct Arguments {
    /// The matrix: a file of 32-bit floats
    #[arg(long, conflicts_with = "memory_mb")]
    file: Option<PathBuf>,
    /// The matrix: so many megabytes of memory
    #[arg(long, required_unless_present = "file")]
    memory_mb: Option<usize>,
    #[arg(long, default_value_t = 8192)]
    columns: usize,
    /// How often to multiply
    #[arg(long, default_value_t = 1)]
    passes: usize,
}

const FLOAT: usize = size_of::<f32>();

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let row = arguments.columns * FLOAT;
    ensure!(row > 0, "a matrix needs columns");
    let vector: Vec<f32> = (0..arguments.columns).map(|at| 1.0 / (1 + at % 97) as f32).collect();
    let mut checksum = Checksum::default();
    if let Some(path) = &arguments.file {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        // SAFETY: nobody writes to the bench's data while it is measured; a file cut short would end the
        // program with SIGBUS, which the bench reports.
        let matrix =
            unsafe { memmap2::Mmap::map(&file) }.with_context(|| format!("cannot map {}", path.display()))?;
        ensure!(matrix.len() >= row, "{} is smaller than one row", path.display());
        multiply(&matrix, &vector, arguments.passes, &mut checksum);
    } else {
        let rows = (arguments.memory_mb.unwrap_or_default() << 20) / row;
        let mut matrix = Vec::with_capacity(rows * row);
        for number in 0..rows * arguments.columns {
            let value = (scramble(number as u64) % 1000) as f32 / 1000.0;
            matrix.extend_from_slice(&value.to_le_bytes());
        }
        multiply(&matrix, &vector, arguments.passes, &mut checksum);
    }
    println!("{} passes, checksum {:016x}", arguments.passes, checksum.value());
    Ok(())
}

fn multiply(matrix: &[u8], vector: &[f32], passes: usize, checksum: &mut Checksum) {
    for _ in 0..passes {
        for row in matrix.chunks_exact(vector.len() * FLOAT) {
            let product: f32 = row
                .chunks_exact(FLOAT)
                .zip(vector)
                .map(|(bytes, factor)| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) * factor)
                .sum();
            checksum.add(&product.to_le_bytes());
        }
    }
}
