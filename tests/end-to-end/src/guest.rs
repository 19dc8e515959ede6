//! Guest programs: small C, C++ or Go programs, one trap each, in `tests/guests`. The comment at the
//! head of a guest says how it is built and run, so that a new test is one new file:
//!
//! ```c
//! // trap: what may go wrong, in one sentence
//! // build: -pthread           more words for the compiler
//! // library: plugin.c         also build plugin.so from it, beside the guest
//! // needs: root               skip without it (see needs.rs); may repeat
//! // release: trixie libc6     run with the loader and C library of another Debian release, which ./x
//! //                           fetches; skipped without
//! // data: cold.bin 4M         make this file before each run; may repeat
//! // data: many/{300} 4K       the files many/0 to many/299
//! // run: arguments            one test for each such line; none means one without arguments;
//! // run: arguments => signal 9  the same with an ending of its own
//! // loaded:                 only with a loader; the others in C are built without one as well
//! // glibc: why              not with musl's loader and C library; the others in C are built for these as well
//! // stdin: cold.bin           or `closed`, or `keys abc\n`; /dev/null if not said
//! // terminal:                 standard streams are a terminal
//! // around: taskset -c 0      set the scene
//! // expect: exit 3            or `signal 9`; exit 0 if not said
//! // modes: cold warm          default: cold, warm and no-speculation
//! // timeout: 20               seconds; 60 if not said
//! ```
//!
//! In `build`, `around` and `run`, `{here}` is the folder of the built guests. A guest in Go is built
//! with cgo and so dynamically linked, and needs `go` without saying so.

use crate::compare::Expectation;
use crate::locate::{self, Runahead};
use crate::needs;
use crate::scenario::{COLD, Mode, NO_SPECULATION, Scenario, WARM, bytes};
use crate::supervise::Stdin;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// A guest's file and what its head says.
pub struct Guest {
    source: PathBuf,
    directives: Vec<(String, String)>,
    built: OnceLock<Result<PathBuf, String>>,
    kind: Kind,
}

/// How a guest is built.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// As its head says.
    Usual,
    /// Without a loader.
    Static,
    /// With musl's loader, which is its C library as well.
    Musl,
    /// With that C library in it, and nothing that tells where its functions are.
    MuslStatic,
}

impl Kind {
    /// How the names of its tests begin.
    fn name(self) -> &'static str {
        match self {
            Kind::Usual => "guest",
            Kind::Static => "static",
            Kind::Musl => "musl",
            Kind::MuslStatic => "musl-static",
        }
    }

    fn is_musl(self) -> bool {
        matches!(self, Kind::Musl | Kind::MuslStatic)
    }
}

/// One of a guest's tests.
pub struct GuestRun {
    pub name: String,
    arguments: Vec<String>,
    expect: String,
}

const KNOWN: [&str; 15] = [
    "trap", "build", "library", "needs", "release", "loaded", "glibc", "data", "run", "stdin", "terminal",
    "around", "expect", "modes", "timeout",
];

/// Builds programs for musl's loader.
pub const MUSL_COMPILER: &str = "musl-gcc";

impl Guest {
    /// Every guest in `tests/guests`, in the order of names.
    pub fn all() -> Result<Vec<Arc<Guest>>, String> {
        let folder = locate::tests_folder().join("guests");
        let mut sources: Vec<PathBuf> = fs::read_dir(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "c" || kind == "cc" || kind == "go"))
            .collect();
        sources.sort();
        sources.into_iter().map(|source| Guest::read(source).map(Arc::new)).collect()
    }

    pub fn named(name: &str) -> Result<Arc<Guest>, String> {
        Guest::all()?.into_iter().find(|guest| guest.name() == name).ok_or_else(|| format!("no guest {name}"))
    }

    fn read(source: PathBuf) -> Result<Guest, String> {
        let text = fs::read_to_string(&source).map_err(|error| error.to_string())?;
        let mut directives = Vec::new();
        for line in text.lines().map_while(|line| line.strip_prefix("// ")) {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            if KNOWN.contains(&name) {
                directives.push((name.to_owned(), value.trim().to_owned()));
            } else if !name.contains(' ') {
                return Err(format!("{}: unknown directive '{name}'", source.display()));
            }
        }
        let guest = Guest { source, directives, built: OnceLock::new(), kind: Kind::Usual };
        match guest.first("trap") {
            None => Err(format!("{}: no '// trap:' line", guest.source.display())),
            Some(_) => Ok(guest),
        }
    }

    /// The same guest without a loader, where that makes sense: in C, without libraries and another release's
    /// loader.
    pub fn statically(&self) -> Option<Guest> {
        let is_loaded = self.first("release").is_some() || self.first("loaded").is_some();
        (!is_loaded).then(|| self.built_as(Kind::Static)).flatten()
    }

    /// The same guest with musl's loader, where that makes sense.
    pub fn with_musl(&self) -> Option<Guest> {
        self.first("glibc").is_none().then(|| self.built_as(Kind::Musl)).flatten()
    }

    /// The same guest with musl's C library in it, where both make sense.
    pub fn statically_with_musl(&self) -> Option<Guest> {
        self.with_musl().filter(|guest| guest.first("loaded").is_none())?.built_as(Kind::MuslStatic)
    }

    fn built_as(&self, kind: Kind) -> Option<Guest> {
        let is_c = self.source.extension().is_some_and(|kind| kind == "c");
        let has_libraries = self.first("library").is_some()
            || self.first("around").is_some_and(|words| words.contains("{here}"))
            || self.first("build").is_some_and(|words| words.contains("{here}"));
        (is_c && !has_libraries).then(|| Guest {
            source: self.source.clone(),
            directives: self.directives.clone(),
            built: OnceLock::new(),
            kind,
        })
    }

    fn every<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.directives.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    fn first(&self, name: &str) -> Option<&str> {
        self.directives.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub fn name(&self) -> String {
        self.source.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub fn needs(&self) -> Vec<String> {
        let toolchain = self.is_go().then(|| "go".to_owned());
        let release = self.release().map(|release| format!("release {release}"));
        let musl = self.kind.is_musl().then(|| format!("command {MUSL_COMPILER}"));
        self.every("needs").map(str::to_owned).chain(toolchain).chain(release).chain(musl).collect()
    }

    fn is_go(&self) -> bool {
        self.source.extension().is_some_and(|kind| kind == "go")
    }

    /// Compiles the guest, once.
    pub fn build(&self) -> Result<PathBuf, String> {
        let build = || {
            for library in self.every("library") {
                let source = self.source.with_file_name("libraries").join(library);
                compile(&source, "so", &["-shared", "-fPIC"])?;
            }
            let mut words = self.first("build").unwrap_or_default().replace("{here}", &here());
            if let Some(folder) = self.other_release() {
                let folder = folder.display();
                words += &format!(" -Wl,-rpath,{folder} -Wl,--dynamic-linker={folder}/{}", locate::LOADER);
            }
            words += match self.kind {
                Kind::Usual | Kind::Musl => "",
                Kind::Static => " -static",
                Kind::MuslStatic => " -static-pie -s",
            };
            let kind = if self.kind == Kind::Usual { "" } else { self.kind.name() };
            compile(&self.source, kind, &words.split_whitespace().collect::<Vec<_>>())
        };
        self.built.get_or_init(build).clone()
    }

    /// Where the libraries of another release are that it runs with.
    fn other_release(&self) -> Option<PathBuf> {
        self.release().map(locate::other_release)
    }

    fn release(&self) -> Option<&str> {
        (!self.kind.is_musl()).then(|| self.first("release")).flatten()
    }

    /// The guest's tests: a name and the arguments of each.
    pub fn runs(&self) -> Vec<GuestRun> {
        let usual = self.first("expect").unwrap_or("exit 0");
        let mut lines: Vec<&str> = self.every("run").collect();
        if lines.is_empty() {
            lines.push("");
        }
        let run = |line: &str| {
            let (words, expect) = line.split_once("=>").unwrap_or((line, usual));
            let mut name = format!("{}::{}", self.kind.name(), self.name());
            for word in words.split_whitespace() {
                name += &format!("::{}", word.replace("{here}/", ""));
            }
            let words = words.replace("{here}", &here());
            let arguments = words.split_whitespace().map(str::to_owned).collect();
            GuestRun { name, arguments, expect: expect.trim().to_owned() }
        };
        lines.into_iter().map(run).collect()
    }

    /// A test of this guest with arguments of the caller's.
    pub fn run_with(&self, arguments: &[&str]) -> GuestRun {
        GuestRun {
            name: format!("guest::{}::{}", self.name(), arguments.join("::")),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            expect: "exit 0".to_owned(),
        }
    }

    /// The scenario of one of the guest's tests.
    pub fn scenario(&self, run: &GuestRun) -> Result<Scenario, String> {
        let program = self.build()?;
        let mut argv = vec![program.to_string_lossy().into_owned()];
        argv.extend(run.arguments.iter().cloned());
        let mut data = Vec::new();
        for (seed, line) in self.every("data").enumerate() {
            let (file, size) = line.split_once(' ').ok_or(format!("data: '{line}' has no size"))?;
            let size = parse_size(size)?;
            for (number, file) in numbered(file)?.into_iter().enumerate() {
                data.push((file, size, ((number as u64) << 8) + seed as u64 + 1));
            }
        }
        let mut scenario = Scenario::new(run.name.clone(), argv)
            .prepare(move |directory| {
                for (file, size, seed) in &data {
                    let path = directory.join(file);
                    fs::create_dir_all(path.parent().unwrap_or(directory))?;
                    fs::write(path, bytes(*seed, *size))?;
                }
                Ok(())
            })
            .modes(self.modes()?)
            .expect(Some(expectation(&run.expect)?));
        scenario = match self.first("stdin") {
            None => scenario,
            Some("closed") => scenario.stdin(Stdin::Closed),
            Some(text) if text.starts_with("keys ") => {
                scenario.stdin(Stdin::Pipe(unescape(&text["keys ".len()..])))
            }
            Some(file) => scenario.stdin(Stdin::File(PathBuf::from(file))),
        };
        if self.first("terminal").is_some() {
            scenario = scenario.terminal();
        }
        if let Some(words) = self.first("around") {
            scenario = scenario.around(words.replace("{here}", &here()).split_whitespace());
        }
        if let Some(seconds) = self.first("timeout") {
            let seconds = seconds.parse().map_err(|_| format!("timeout: '{seconds}'"))?;
            scenario = scenario.timeout(Duration::from_secs(seconds));
        }
        Ok(scenario)
    }

    fn modes(&self) -> Result<Vec<Mode>, String> {
        let words = self.first("modes").unwrap_or("cold warm no-speculation");
        // How its calls are found is what makes it another program, which is the same in each.
        let most = if self.kind == Kind::MuslStatic { 1 } else { usize::MAX };
        words
            .split_whitespace()
            .take(most)
            .map(|word| match word {
                "cold" => Ok(COLD),
                "warm" => Ok(WARM),
                "no-speculation" => Ok(NO_SPECULATION),
                other => Err(format!("modes: '{other}'")),
            })
            .collect()
    }
}

fn expectation(text: &str) -> Result<Expectation, String> {
    let number = |digits: &str| digits.parse().map_err(|_| format!("expect: '{text}'"));
    match text.split_once(' ') {
        Some(("exit", code)) => Ok(Expectation::Exit(number(code)?)),
        Some(("signal", signal)) => Ok(Expectation::Signal(number(signal)?)),
        _ => Err(format!("expect: '{text}'")),
    }
}

fn here() -> String {
    locate::build_folder().join("guests").to_string_lossy().into_owned()
}

fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.strip_suffix(['K', 'M']) {
        Some(digits) if text.ends_with('K') => (digits, 1 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (text, 1),
    };
    digits.trim().parse::<usize>().map(|size| size * factor).map_err(|_| format!("size: '{text}'"))
}

/// The files that a name in a `data` line stands for: itself, or as many as it says in braces.
fn numbered(name: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = name.split_once('{') else {
        return Ok(vec![name.to_owned()]);
    };
    let (count, after) = rest.split_once('}').ok_or(format!("data: '{name}'"))?;
    let count: u32 = count.parse().map_err(|_| format!("data: '{name}'"))?;
    Ok((0..count).map(|number| format!("{before}{number}{after}")).collect())
}

fn unescape(text: &str) -> Vec<u8> {
    text.replace("\\n", "\n").replace("\\4", "\u{4}").replace("\\3", "\u{3}").into_bytes()
}

/// The newest change among the guests' headers and libraries: any of them rebuilds every guest,
/// which is simple, and costs seconds when a header changes.
fn newest_shared_source() -> SystemTime {
    static NEWEST: OnceLock<SystemTime> = OnceLock::new();
    *NEWEST.get_or_init(|| {
        let folder = locate::tests_folder().join("guests");
        let shared = crate::tree::walk(&folder).unwrap_or_default();
        let times = shared.iter().filter(|path| path.extension().is_some_and(|kind| kind == "h"));
        times.filter_map(|path| modified(path)).max().unwrap_or(SystemTime::UNIX_EPOCH)
    })
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Compiles one source into the build folder, if it is newer than what is there. Warnings are
/// errors: a guest that does not say what it means tests something else.
fn compile(source: &Path, kind: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let stem = source.file_stem().unwrap_or_default();
    let parent = source.parent().and_then(Path::file_name).unwrap_or_default();
    let folder = locate::build_folder().join(if parent == "libraries" { "guests".as_ref() } else { parent });
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let target = folder.join(stem).with_extension(kind);
    let newest_source = modified(source).max(Some(newest_shared_source()));
    if modified(&target) >= newest_source {
        return Ok(target);
    }
    let aside =
        target.with_extension(format!("new-{}-{:?}", std::process::id(), std::thread::current().id()));
    let compiler_is_go = source.extension().is_some_and(|kind| kind == "go");
    let mut compiler = match source.extension().and_then(|kind| kind.to_str()) {
        Some("go") => go_compiler(&folder),
        Some("cc") => c_compiler("g++"),
        _ if [Kind::Musl, Kind::MuslStatic].map(Kind::name).contains(&kind) => {
            let mut compiler = c_compiler(MUSL_COMPILER);
            // The kernel's headers, of which musl has none of its own.
            for folder in ["/usr/include/x86_64-linux-gnu", "/usr/include"] {
                compiler.args(["-idirafter", folder]);
            }
            compiler
        }
        _ => c_compiler("gcc"),
    };
    // Go wants its flags first, a linker of C its libraries last.
    let (first, last) = if compiler_is_go { (flags, &[][..]) } else { (&[][..], flags) };
    let output =
        compiler.args(first).arg("-o").arg(&aside).arg(source).args(last).output().map_err(|error| {
            format!("{} cannot be started: {error}", compiler.get_program().to_string_lossy())
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} does not compile:\n{said}", source.display()));
    }
    fs::rename(&aside, &target).map_err(|error| error.to_string())?;
    Ok(target)
}

fn c_compiler(name: &str) -> Command {
    let mut compiler = Command::new(name);
    compiler
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-D_GNU_SOURCE"])
        .arg("-I")
        .arg(locate::tests_folder().join("guests"));
    compiler
}

/// cgo, so that the program is dynamically linked. What the compiler keeps of its own library lies
/// beside the guests, and nothing is fetched.
fn go_compiler(folder: &Path) -> Command {
    let go = needs::go().unwrap_or_else(|| PathBuf::from("go"));
    let mut compiler = Command::new(go);
    compiler
        .env("CGO_ENABLED", "1")
        .env("GOCACHE", folder.join("go-cache"))
        .env("GOPROXY", "off")
        .env("GOFLAGS", "")
        .env("GO111MODULE", "off")
        .arg("build");
    compiler
}

/// A stand-in for Runahead that breaks one property (`none`: no property). It is told which in the
/// environment, where names beginning with RUNAHEAD may differ.
pub fn stand_in(broken: &str) -> Result<Runahead, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let folder = locate::tests_folder().join("stand-ins");
        compile(&folder.join("agent.c"), "so", &["-shared", "-fPIC", "-pthread"])?;
        compile(&folder.join("runahead.c"), "", &[])
    };
    let path = BUILT.get_or_init(build).clone()?;
    Ok(Runahead {
        label: broken.to_owned(),
        command: path.to_string_lossy().into_owned(),
        environment: vec![("RUNAHEAD_BREAKS".to_owned(), broken.to_owned())],
    })
}
