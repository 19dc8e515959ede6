//! What a run puts out, compared with the first run's byte by byte: standard output and error on their way
//! through the pipes, the exit status, and every file that it wrote, at any depth.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout};

use anyhow::{Context, Result};

pub enum Pipe {
    Out(ChildStdout),
    Err(ChildStderr),
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Pipe::Out(pipe) => pipe.read(buffer),
            Pipe::Err(pipe) => pipe.read(buffer),
        }
    }
}

/// The first run's outputs, a file each.
pub struct Reference {
    directory: PathBuf,
    /// There is none yet: this run's outputs become it.
    first: bool,
}

#[derive(Default)]
pub struct Compared {
    pub bytes: u64,
    pub difference: Option<String>,
}

impl Reference {
    pub fn open(directory: &Path) -> Result<Reference> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Reference { directory: directory.to_path_buf(), first: !directory.join("complete").exists() })
    }

    pub fn complete(&self) -> Result<()> {
        fs::write(self.directory.join("complete"), "").context("cannot keep the first run's outputs")
    }

    pub fn drain(&self, name: &str, mut pipe: Pipe) -> Result<Compared> {
        let descriptor = match &pipe {
            Pipe::Out(pipe) => pipe.as_raw_fd(),
            Pipe::Err(pipe) => pipe.as_raw_fd(),
        };
        // SAFETY: a setting of a descriptor of our own. A megabyte, the most that an ordinary user may
        // have: the command should not wait for us. If refused, 64 KB will do.
        unsafe { libc::fcntl(descriptor, libc::F_SETPIPE_SZ, 1 << 20) };
        let path = self.directory.join(name);
        let mut file = if self.first { File::create(&path)? } else { File::open(&path)? };
        let mut buffer = vec![0; 256 << 10];
        let mut expected = vec![0; buffer.len()];
        let mut compared = Compared::default();
        loop {
            let count = pipe.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            if self.first {
                file.write_all(&buffer[..count])?;
            } else if compared.difference.is_none() {
                let found = read_fully_at(&file, &mut expected[..count], compared.bytes)?;
                if expected[..found] != buffer[..count] {
                    let at = (0..count).find(|index| *index >= found || expected[*index] != buffer[*index]);
                    compared.difference =
                        Some(format!("{name} differs at byte {}", compared.bytes + at.unwrap_or(0) as u64));
                }
            }
            compared.bytes += count as u64;
        }
        let length = file.metadata()?.len();
        if compared.difference.is_none() && compared.bytes != length {
            compared.difference =
                Some(format!("{name} has {} bytes, the first run's {length}", compared.bytes));
        }
        Ok(compared)
    }

    pub fn compare_status(&self, exit: i32) -> Result<Option<String>> {
        let path = self.directory.join("exit");
        if self.first {
            fs::write(&path, exit.to_string())?;
            return Ok(None);
        }
        let first = fs::read_to_string(&path)?;
        Ok((first != exit.to_string()).then(|| format!("exit status {exit}, the first run's {first}")))
    }

    /// Files in the scratch directory, by name.
    pub fn compare_files(&self, scratch: &Path) -> Result<Option<String>> {
        let kept = self.directory.join("files");
        fs::create_dir_all(&kept)?;
        let written = below(scratch)?;
        if self.first {
            for name in &written {
                let (from, to) = (scratch.join(name), kept.join(name));
                if from.symlink_metadata()?.is_dir() { fs::create_dir(to)? } else { copy(&from, &to)? }
            }
            return Ok(None);
        }
        if written != below(&kept)? {
            return Ok(Some("other files were written than in the first run".into()));
        }
        for name in &written {
            if !same_contents(&scratch.join(name), &kept.join(name))? {
                return Ok(Some(format!("the written file {} differs", name.display())));
            }
        }
        Ok(None)
    }
}

/// Everything below the directory, relative to it, sorted, a directory before what it holds.
pub fn below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(inside) = directories.pop() {
        for entry in fs::read_dir(&inside)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            }
            found.push(entry.path().strip_prefix(directory)?.to_path_buf());
        }
    }
    found.sort();
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.symlink_metadata()?.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
    } else {
        fs::copy(from, to)?;
    }
    Ok(())
}

fn read_fully_at(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

/// The same kind of thing, and a file holds the same bytes, a link leads to the same place.
fn same_contents(one: &Path, other: &Path) -> Result<bool> {
    let kinds = (one.symlink_metadata()?.file_type(), other.symlink_metadata()?.file_type());
    if kinds.0 != kinds.1 || kinds.0.is_dir() {
        return Ok(kinds.0 == kinds.1);
    }
    if kinds.0.is_symlink() {
        return Ok(fs::read_link(one)? == fs::read_link(other)?);
    }
    let (one, other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut first, mut second) = (vec![0; 256 << 10], vec![0; 256 << 10]);
    let mut offset = 0;
    loop {
        let count = read_fully_at(&one, &mut first, offset)?;
        if read_fully_at(&other, &mut second, offset)? != count || first[..count] != second[..count] {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        offset += count as u64;
    }
}
