//! A command: what its files tell. Nothing is run.

use super::libraries;
use crate::doctor::apart::Say;
use crate::doctor::verdicts::command as say;
use crate::installation::Installation;
use crate::program::{self, Foreign};
use object::elf::FileHeader64;
use object::read::elf::FileHeader as _;
use object::{LittleEndian, ReadCache};
use runahead_abi::sites::BLIND;
use runahead_insert::file::{self, Entrance, Look, SCRIPTS};
use runahead_sites::{SiteFile, analyse, file_key};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Looks at a command, and says what it finds as it finds it. `traces`: processes may be traced here.
pub fn look(words: &[OsString], traces: bool, to: &mut Say) {
    let name = words.first().map_or(OsStr::new(""), OsString::as_os_str);
    let found = Found::look(name);
    let line = say::found(name, &found);
    to.line(&line);
    let Found::Program { chain } = found else { return };
    let Some(path) = chain.last() else { return };
    let program = Facts::look(path);
    say::program(path, &program, traces).iter().for_each(|line| to.line(line));
    if program.rights.is_none() && program.is_followed() {
        let preloaded = preloaded();
        to.line(&say::calls(&Calls::look(path, &preloaded)));
        if !preloaded.is_empty() {
            to.line(&say::preloads(&preloaded));
        }
    }
}

/// What a command's name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// It is there, and may not be executed.
    Forbidden(PathBuf),
    /// A script's interpreter is not there.
    NoInterpreter(PathBuf, PathBuf),
    /// The file, and behind a script its interpreter.
    Program {
        chain: Vec<PathBuf>,
    },
}

impl Found {
    fn look(name: &OsStr) -> Found {
        let files: Vec<PathBuf> =
            program::candidates(name).into_iter().filter(|path| path.is_file()).collect();
        // As execvp(3) goes on where it may not.
        let executable = files.iter().find(|path| file::may_be_executed(path));
        let Some(path) = executable else {
            return files.into_iter().next().map_or(Found::Nothing, Found::Forbidden);
        };
        let mut chain = vec![path.clone()];
        for _ in 0..SCRIPTS {
            let Some(last) = chain.last() else { break };
            let Some(opened) = file::open(last) else { break };
            let Look::Script(interpreter) = file::look_at(&opened, last.file_name().unwrap_or_default())
            else {
                break;
            };
            if !interpreter.is_file() {
                return Found::NoInterpreter(last.clone(), interpreter);
            }
            chain.push(interpreter);
        }
        Found::Program { chain }
    }
}

/// What a program's own file tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub kind: Kind,
    pub rights: Option<Rights>,
    pub loader: Option<PathBuf>,
    pub is_go: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ours(Entrance),
    /// A 32-bit program.
    Narrow,
    /// None for this machine.
    Other,
    /// It cannot be read.
    Unread,
}

/// Rights that a program would get at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    User(u32),
    Group(u32),
    /// File capabilities.
    Capabilities,
}

impl Facts {
    /// It is a program that the agent can come into.
    fn is_followed(&self) -> bool {
        matches!(self.kind, Kind::Ours(_))
    }

    fn look(path: &Path) -> Facts {
        let none = Facts { kind: Kind::Unread, rights: None, loader: None, is_go: false };
        let Some(file) = file::open(path) else { return none };
        let Ok(told) = file.metadata() else { return none };
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let kind = match file::look_at(&file, real.file_name().unwrap_or_default()) {
            Look::Program(entrance) => Kind::Ours(entrance),
            _ if program::foreign(path.as_os_str()) == Some(Foreign::Narrow) => Kind::Narrow,
            _ => Kind::Other,
        };
        let rights = rights(&file, &told);
        Facts { kind, rights, loader: libraries::loader(path), is_go: is_go(path) }
    }
}

/// What execve(2) would give, as far as we lack it.
fn rights(file: &std::fs::File, told: &Metadata) -> Option<Rights> {
    // SAFETY: a question.
    let gets_none = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) } == 1;
    let may_give = rustix::fs::fstatvfs(file)
        .is_ok_and(|mount| !mount.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID));
    if file::may_be_traced(file, told) || gets_none || !may_give {
        return None;
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mode = told.mode();
    if mode & libc::S_ISUID != 0 && told.uid() != user {
        Some(Rights::User(told.uid()))
    } else if mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP && told.gid() != group {
        Some(Rights::Group(told.gid()))
    } else if mode & (libc::S_ISUID | libc::S_ISGID) == 0 && user != 0 {
        Some(Rights::Capabilities)
    } else {
        None
    }
}

fn is_go(path: &Path) -> bool {
    let Some(file) = file::open(path) else { return false };
    let cache = ReadCache::new(file);
    let data = &cache;
    let Ok(header) = FileHeader64::<LittleEndian>::parse(data) else { return false };
    let Ok(endian) = header.endian() else { return false };
    let Ok(sections) = header.sections(endian, data) else { return false };
    sections.iter().any(|section| sections.section_name(endian, section) == Ok(b".go.buildinfo"))
}

/// Files whose system calls were looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub looked: usize,
    /// They may make calls that nobody sees.
    pub blind: Vec<PathBuf>,
    pub unread: Vec<PathBuf>,
}

impl Calls {
    fn look(program: &Path, preloaded: &[PathBuf]) -> Calls {
        let known = Installation::find().ok().map(|found| found.known);
        let sites = SiteFile::open_or_make().ok().map(|sites| match known {
            Some(known) => sites.with_known(known),
            None => sites,
        });
        let mut calls = Calls::default();
        let program = program.canonicalize().unwrap_or_else(|_| program.to_owned());
        for path in std::iter::once(program.clone()).chain(libraries::of(&program, preloaded)) {
            match is_blind(&path, sites.as_ref()) {
                None => calls.unread.push(path),
                Some(is_blind) => {
                    calls.looked += 1;
                    if is_blind {
                        calls.blind.push(path);
                    }
                }
            }
        }
        calls
    }
}

/// None: it cannot be read.
fn is_blind(path: &Path, sites: Option<&SiteFile>) -> Option<bool> {
    let known = sites.and_then(|sites| {
        sites.ensure(path).ok()?;
        let (_, unproven) = sites.lookup(&file_key(&std::fs::metadata(path).ok()?))?;
        Some(unproven & BLIND != 0)
    });
    // What was written a moment ago is not kept.
    known.or_else(|| Some(analyse(path).ok()?.is_blind()))
}

/// The libraries that the environment has preloaded, as far as they are files.
fn preloaded() -> Vec<PathBuf> {
    let value = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let names = value.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    names.map(|name| PathBuf::from(OsStr::from_bytes(name))).filter(|path| path.is_file()).collect()
}
