//! A small viewer of volumes: cuts random planes out of a cube of floats and draws them.
//!
//! What XDataSlice did in the 1999 paper. A plane leans: its row at depth z lies at y = y0 + lean x z, so
//! each row is somewhere else in the file. An oblique one leans along x too, so that a row of the picture
//! runs through several rows of the file. The viewer reads blocks, and keeps the one that it is in.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bench_programs::{Checksum, Random, hint};
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
    /// Lean along x too, and read blocks of 8 KB as the paper's viewer did, instead of single rows
    #[arg(long)]
    oblique: bool,
    /// Tell the kernel of the reads to come, so many ahead; 0: tell nothing
    #[arg(long, default_value_t = 0)]
    hints: usize,
    /// Disclose all blocks beforehand, by Runahead's hint interface
    #[arg(long)]
    manual: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the pictures
    #[arg(long)]
    out: PathBuf,
}

/// The paper's file system had blocks of 8 KB, and its viewer read one at a time.
const OBLIQUE_BLOCK: u64 = 8192;

/// The paper's 25 slices took 46,352 blocks, 3.6 for each of 512 rows: a row that runs through 512 x t rows
/// of the file touches 1 + 128 t blocks of four rows, so t is 0.02 on the average of 0 to 0.041.
const OBLIQUE_LEAN: f64 = 0.041;

struct Plane {
    start: f64,
    lean: f64,
    across: f64,
    edge: u64,
}

/// Points that lie one behind the other in the file.
struct Piece {
    offset: u64,
    points: u64,
}

impl Plane {
    /// The row's pieces in the order of drawing, none of them across two blocks.
    fn pieces(&self, z: u64, block: u64) -> impl Iterator<Item = Piece> {
        let (edge, base, across) = (self.edge, self.start + self.lean * z as f64, self.across);
        let mut x = 0;
        std::iter::from_fn(move || {
            if x == edge {
                return None;
            }
            let y = (base + across * x as f64).rem_euclid(edge as f64) as u64 % edge;
            let offset = ((z * edge + y) * edge + x) * 4;
            let points = if across == 0.0 { (edge - x).min((block - offset % block) / 4) } else { 1 };
            x += points;
            Some(Piece { offset, points })
        })
    }

    /// The blocks that hold the plane, in the order in which drawing wants them.
    fn blocks(&self, size: u64) -> Vec<u64> {
        let pieces = (0..self.edge).flat_map(|z| self.pieces(z, size));
        let mut blocks: Vec<u64> = pieces.map(|piece| piece.offset / size).collect();
        blocks.dedup();
        blocks
    }
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
    let size = if arguments.oblique { OBLIQUE_BLOCK } else { edge * 4 };
    let mut plane = || {
        let start = random.below(edge) as f64;
        // From half a row down to half a row up for each step in depth.
        let lean = random.below(1001) as f64 / 1000.0 - 0.5;
        let across = match arguments.oblique {
            true => (random.below(1001) as f64 / 500.0 - 1.0) * OBLIQUE_LEAN,
            false => 0.0,
        };
        Plane { start, lean, across, edge }
    };
    let planes: Vec<Plane> = (0..arguments.slices).map(|_| plane()).collect();
    if arguments.manual {
        let mut hints = runahead_hints::Batch::new();
        let blocks = planes.iter().flat_map(|plane| plane.blocks(size));
        blocks.for_each(|block| hints.add_file(&volume, block * size, size));
        hints.send();
    }
    for (number, plane) in planes.iter().enumerate() {
        let mut checksum = Checksum::default();
        let picture = cut(&volume, plane, size, arguments.hints, &mut checksum)?;
        draw(&arguments.out.join(format!("slice-{number:02}.png")), edge as u32, &picture)?;
        let Plane { start, lean, across, .. } = plane;
        println!("slice {number}: y = {start} {lean:+} z {across:+} x, checksum {:016x}", checksum.value());
    }
    Ok(())
}

/// One grey value for each point of the plane.
fn cut(volume: &File, plane: &Plane, size: u64, hints: usize, checksum: &mut Checksum) -> Result<Vec<u8>> {
    let edge = plane.edge;
    let to_come = if hints > 0 { plane.blocks(size) } else { Vec::new() };
    to_come.iter().take(hints).for_each(|block| hint(volume, block * size, size));
    let mut read = 0;
    let mut held = None;
    let mut block = vec![0u8; size as usize];
    let mut picture = Vec::with_capacity((edge * edge) as usize);
    for piece in (0..edge).flat_map(|z| plane.pieces(z, size)) {
        let wanted = piece.offset / size;
        if held != Some(wanted) {
            if let Some(next) = to_come.get(read + hints) {
                hint(volume, next * size, size);
            }
            volume.read_exact_at(&mut block, wanted * size)?;
            checksum.add(&block);
            held = Some(wanted);
            read += 1;
        }
        let at = (piece.offset % size) as usize;
        picture.extend(block[at..at + 4 * piece.points as usize].chunks_exact(4).map(|bytes| {
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
