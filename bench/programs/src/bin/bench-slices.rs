//! A small viewer of volumes: cuts random planes out of a cube of floats and draws them.
//!
//! What XDataSlice did in the 1999 paper. A plane leans: its row at depth z lies at y = y0 + lean x z, so
//! each row segment is somewhere else in the file and takes a `pread` of its own.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bench_programs::{Checksum, Random};
use clap::Parser;

#[derive(Parser)]
#[command(about = "Cut random slices out of a cube of 32-bit floats and draw them as PNG files")]
struct Arguments {
    volume: PathBuf,
    /// Edge of the cube
    #[arg(long, default_value_t = 512)]
    edge: u64,
    #[arg(long, default_value_t = 25)]
    slices: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the pictures
    #[arg(long)]
    out: PathBuf,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let edge = arguments.edge;
    let volume = File::open(&arguments.volume)
        .with_context(|| format!("cannot open {}", arguments.volume.display()))?;
    let wanted = edge.pow(3) * 4;
    let found = volume.metadata()?.len();
    ensure!(
        found == wanted,
        "{} holds {found} bytes, a cube of edge {edge} has {wanted}",
        arguments.volume.display()
    );
    let mut random = Random::new(arguments.seed);
    for number in 0..arguments.slices {
        let start = random.below(edge);
        // From half a row down to half a row up for each step in depth.
        let lean = random.below(1001) as f64 / 1000.0 - 0.5;
        let mut checksum = Checksum::default();
        let picture = cut(&volume, edge, start, lean, &mut checksum)?;
        draw(&arguments.out.join(format!("slice-{number:02}.png")), edge as u32, &picture)?;
        println!("slice {number}: y = {start} {lean:+} z, checksum {:016x}", checksum.value());
    }
    Ok(())
}

/// One grey value for each point of the plane.
fn cut(volume: &File, edge: u64, start: u64, lean: f64, checksum: &mut Checksum) -> Result<Vec<u8>> {
    let mut row = vec![0u8; edge as usize * 4];
    let mut picture = Vec::with_capacity((edge * edge) as usize);
    for z in 0..edge {
        let y = (start as f64 + lean * z as f64).rem_euclid(edge as f64) as u64 % edge;
        volume.read_exact_at(&mut row, (z * edge + y) * edge * 4)?;
        checksum.add(&row);
        picture.extend(row.chunks_exact(4).map(|bytes| {
            let value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            (value.clamp(0.0, 1.0) * 255.0) as u8
        }));
    }
    Ok(picture)
}

fn draw(path: &Path, edge: u32, picture: &[u8]) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), edge, edge);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    // The viewer's subject is the disk: the fastest compression keeps the processor's part small.
    encoder.set_compression(png::Compression::Fastest);
    encoder.write_header()?.write_image_data(picture)?;
    Ok(())
}
