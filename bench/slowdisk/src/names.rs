//! A file server across a network: a read-only pass-through of a directory, every request delayed.
//!
//! Unlike a block device, such a file system makes names cost as much as data: look-ups, attributes,
//! opens, listings and reads are one request each. What the kernel has cached (names and attributes
//! for [`KEPT`], pages as long as memory lasts) costs nothing, as with NFS.
//!
//! The directory behind it should be on tmpfs: dropping caches must not make it slow on its own.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};

use crate::block::widen;
use crate::pacer::Pacer;

/// How long the kernel may keep a name or attributes: a network file system's upper bound by default.
const KEPT: Duration = Duration::from_secs(60);

/// Bytes of a request that carries no data, for the count only.
const NAME_BYTES: u64 = 0;

/// The pass-through; clones share everything.
#[derive(Clone)]
pub struct Names(Arc<Shared>);

struct Shared {
    pacer: Pacer,
    nodes: Mutex<HashMap<u64, Node>>,
    open: Mutex<HashMap<u64, Arc<Opened>>>,
    next_handle: AtomicU64,
}

struct Node {
    path: PathBuf,
    /// Look-ups that the kernel has not yet taken back.
    known: u64,
}

enum Opened {
    File(File),
    Directory(Vec<(u64, FileType, Vec<u8>)>),
}

impl Names {
    /// Serves what is below `source`.
    pub fn new(source: PathBuf, pacer: Pacer) -> Names {
        let root = Node { path: source, known: 1 };
        Names(Arc::new(Shared {
            pacer,
            nodes: Mutex::new(HashMap::from([(INodeNo::ROOT.0, root)])),
            open: Mutex::new(HashMap::new()),
            next_handle: AtomicU64::new(1),
        }))
    }

    fn later(&self, length: u64, answer: impl FnOnce(&Shared) + Send + 'static) {
        let shared = self.0.clone();
        self.0.pacer.submit(0, length, Box::new(move || answer(&shared)));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Only whole insertions and removals happen under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        let nodes = lock(&self.nodes);
        nodes
            .get(&inode.0)
            .map(|node| node.path.clone())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let path = self.path(parent)?.join(name);
        let attributes = attributes(&fs::symlink_metadata(&path)?);
        lock(&self.nodes).entry(attributes.ino.0).or_insert(Node { path, known: 0 }).known += 1;
        Ok(attributes)
    }

    fn getattr(&self, inode: INodeNo) -> io::Result<FileAttr> {
        let mut found = attributes(&fs::symlink_metadata(self.path(inode)?)?);
        found.ino = inode;
        Ok(found)
    }

    fn keep(&self, opened: Opened) -> FileHandle {
        let handle = self.next_handle.fetch_add(1, Relaxed);
        lock(&self.open).insert(handle, Arc::new(opened));
        FileHandle(handle)
    }

    fn opened(&self, handle: FileHandle) -> io::Result<Arc<Opened>> {
        lock(&self.open).get(&handle.0).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn list(&self, inode: INodeNo) -> io::Result<Opened> {
        let path = self.path(inode)?;
        let mut entries = vec![
            (inode.0, FileType::Directory, b".".to_vec()),
            (inode.0, FileType::Directory, b"..".to_vec()),
        ];
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let number = attributes(&entry.metadata()?).ino.0;
            entries.push((number, kind(entry.file_type()?), entry.file_name().as_bytes().to_vec()));
        }
        Ok(Opened::Directory(entries))
    }

    fn read(&self, handle: FileHandle, offset: u64, size: u32) -> io::Result<Vec<u8>> {
        let Opened::File(file) = &*self.opened(handle)? else {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        };
        let mut buffer = vec![0; size as usize];
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        buffer.truncate(filled);
        Ok(buffer)
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
}

fn kind(kind: fs::FileType) -> FileType {
    // Sockets and devices keep their kind; the catch-all is what stat calls a regular file.
    if kind.is_socket() {
        FileType::Socket
    } else {
        FileType::from_std(kind).unwrap_or(FileType::RegularFile)
    }
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let fraction = Duration::from_nanos(nanoseconds.unsigned_abs());
    let whole = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH - whole + fraction } else { UNIX_EPOCH + whole + fraction }
}

/// The source's own attributes; inode 1 is FUSE's root, so the numbers move up by one.
fn attributes(of: &fs::Metadata) -> FileAttr {
    FileAttr {
        ino: INodeNo(of.ino() + 1),
        size: of.size(),
        blocks: of.blocks(),
        atime: time(of.atime(), of.atime_nsec()),
        mtime: time(of.mtime(), of.mtime_nsec()),
        ctime: time(of.ctime(), of.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: kind(of.file_type()),
        perm: (of.mode() & 0o7777) as u16,
        nlink: of.nlink() as u32,
        uid: of.uid(),
        gid: of.gid(),
        rdev: of.rdev() as u32,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Names {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        widen(config);
        // Without it the kernel sends look-ups in one directory one after another.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_os_string();
        self.later(NAME_BYTES, move |shared| match shared.look_up(parent, &name) {
            Ok(attributes) => reply.entry(&KEPT, &attributes, Generation(0)),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn forget(&self, _request: &Request, inode: INodeNo, count: u64) {
        let mut nodes = lock(&self.0.nodes);
        let Some(node) = nodes.get_mut(&inode.0) else {
            return;
        };
        node.known = node.known.saturating_sub(count);
        if node.known == 0 && inode != INodeNo::ROOT {
            nodes.remove(&inode.0);
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.later(NAME_BYTES, move |shared| match shared.getattr(inode) {
            Ok(attributes) => reply.attr(&KEPT, &attributes),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        self.later(NAME_BYTES, move |shared| match shared.path(inode).and_then(fs::read_link) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        self.later(NAME_BYTES, move |shared| match shared.path(inode).and_then(File::open) {
            Ok(file) => reply.opened(shared.keep(Opened::File(file)), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.later(u64::from(size), move |shared| match shared.read(handle, offset, size) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.0.open).remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.later(NAME_BYTES, move |shared| match shared.list(inode) {
            Ok(listing) => {
                reply
                    .opened(shared.keep(listing), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn readdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.later(NAME_BYTES, move |shared| match shared.opened(handle).as_deref() {
            Ok(Opened::Directory(entries)) => {
                for (index, (inode, kind, name)) in entries.iter().enumerate().skip(offset as usize) {
                    if reply.add(INodeNo(*inode), index as u64 + 1, *kind, OsStr::from_bytes(name)) {
                        break;
                    }
                }
                reply.ok();
            }
            Ok(Opened::File(_)) => reply.error(Errno::ENOTDIR),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn releasedir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.0.open).remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        self.later(NAME_BYTES, move |_| reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096));
    }
}
