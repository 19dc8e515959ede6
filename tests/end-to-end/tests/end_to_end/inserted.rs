//! Programs into which no loader brings the agent: static ones, and those that are started without the
//! variables that name it. The guests do this too, each built without a loader (`guests`).

use crate::programs::files;
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, Mode, NO_SPECULATION, Scenario, WARM};

/// Ways of executing a program, which sees what it sees of itself; `$SEES` is that program, `$STATIC` the
/// same without a loader.
const WAYS: &[(&str, &str)] = &[
    ("nothing in the environment", "$UNDER env -i $SEES bare"),
    ("nothing in the environment, without a loader", "$UNDER env -i $STATIC bare"),
    ("a static command", "$UNDER $STATIC tell"),
    ("something else preloaded", "$UNDER env LD_PRELOAD=libm.so.6 $SEES tell"),
    ("something else preloaded, and nothing else", "$UNDER env -i LD_PRELOAD=libm.so.6 $SEES bare"),
    ("nothing preloaded", "$UNDER env LD_PRELOAD= $SEES tell"),
    (
        "children of who has nothing",
        "$UNDER env -i bash -c '$1 bare; $2 bare; exec $1 bare' bash $SEES $STATIC",
    ),
    ("children of a static program", "$UNDER $STATIC empty; $UNDER $STATIC many; $UNDER $STATIC descriptor"),
    (
        "scripts of a static interpreter",
        "cp $STATIC here; printf '#!%s tell\\n' $PWD/here > script; chmod +x script; \
         $UNDER ./script 2>&1; $UNDER env -i ./script",
    ),
    (
        "many arguments",
        "$UNDER env -i $SEES bare $(seq 3000) | cksum; $UNDER env -i $STATIC bare $(seq 9000) | cksum",
    ),
    (
        "a large environment",
        "for n in $(seq 2000); do export V$n=$n; done; $UNDER bash -c 'unset LD_PRELOAD; exec $1 tell' bash $SEES | cksum",
    ),
    ("switched off within", "$UNDER env RUNAHEAD=off $STATIC tell; $UNDER env -i RUNAHEAD=off $SEES tell"),
    ("random addresses off", "$UNDER setarch -R env -i $SEES bare; $UNDER setarch -R $STATIC tell"),
    (
        "a limit on addresses",
        "$UNDER bash -c 'ulimit -v 20000; $1 tell; exec env -i $2 bare' bash $STATIC $SEES",
    ),
];

pub fn add(suite: &mut Suite) {
    for (name, line) in WAYS.iter().copied() {
        suite.add_plain(format!("inserted::{name}"), move || {
            scenario(name, line)?.modes([COLD, WARM, NO_SPECULATION]).check(&Runahead::built()?)
        });
    }
    suite.add_plain("inserted::what never waits is left alone soon", left_alone);
    // The command itself is one of musl's, and static.
    suite.add_plain("inserted::a static program of musl", || {
        let runahead = Runahead::built()?;
        let line = format!(
            "for around in '' 'env -i'; do $UNDER $around {0} --version; \
             $UNDER $around {0} run -- md5sum tree/*/*.txt; done",
            runahead.command
        );
        scenario("musl", &line)?.modes([COLD, WARM]).check(&runahead)
    });
    suite.add(
        "inserted::a program that gets rights by its file gets them",
        ["root", "command setpriv"],
        || gets_rights(&Runahead::built()?),
    );
    for (name, line) in [
        ("a static program", "$STATIC quick"),
        ("who has nothing in his environment", "env -i $SEES quick"),
        ("who preloads something else", "env LD_PRELOAD=libdl.so.2 $SEES quick"),
    ] {
        suite.add_plain(format!("inserted::{name} is helped"), move || {
            is_helped(name, line, &Runahead::built()?)
        });
    }
}

fn scenario(name: &str, line: &str) -> Result<Scenario, String> {
    let guests = Guest::all()?;
    let guest =
        guests.iter().find(|guest| guest.name() == "executes").ok_or("the guest 'executes' has gone")?;
    let (sees, alone) = (guest.build()?, guest.statically().ok_or("it has no static kind")?.build()?);
    let line = format!("SEES={} STATIC={}; {line}", sees.display(), alone.display());
    Ok(Scenario::shell(format!("inserted {name}"), &line).prepare(|directory| {
        files(directory)?;
        std::fs::write(directory.join("cold.bin"), runahead_end_to_end::scenario::bytes(7, 1 << 20))
    }))
}

/// Traced, it would not: so it is not traced.
fn gets_rights(runahead: &Runahead) -> Verdict {
    let line = "cp $SEES gets; cp $STATIC gets-too; chmod 4755 gets gets-too; chmod 777 .; \
                as() { setpriv --reuid 65534 --regid 65534 --clear-groups -- \"$@\"; }; \
                for file in ./gets ./gets-too; do as $UNDER $file rights; as $UNDER env -i $file rights; done; \
                mkdir first second; cp $STATIC first/finds; cp $STATIC second/finds; \
                chmod 644 first/finds; chmod 4755 second/finds; export PATH=$PWD/first:$PWD/second:$PATH; \
                as $UNDER finds rights; as $UNDER env -i PATH=$PATH finds rights; rm -r gets gets-too first second";
    scenario("gets rights", line)?.modes([WARM]).check(runahead)
}

/// Each says whether it has the agent in it.
fn left_alone() -> Verdict {
    let runahead = Runahead::built()?;
    for (what, each, expected) in [
        ("never wait", "$STATIC mapped; ", "111000000"),
        ("never wait and have nothing in their environment", "env -i $SEES mapped; ", "111000000"),
        ("wait", "$STATIC mapped waits; ", "111111111"),
    ] {
        let line = format!("$UNDER bash -c '{}' bash", each.repeat(9));
        let line = format!("export SEES STATIC; {line}");
        let told =
            scenario("left alone", &line)?.run(&UNDER, &runahead).map_err(|error| error.to_string())?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        if told != expected {
            return Err(format!("those that {what}: {told}, not {expected}"));
        }
    }
    Ok(())
}

/// The agent is there and counts. In a fresh home the first run may be over before a library that nobody has met yet is
/// known (and a large one stays unknown as long as all runs are that short).
fn is_helped(name: &str, line: &str, runahead: &Runahead) -> Verdict {
    let line = format!(
        "set -- $UNDER; $1 run --report said.json -- {line}; \
         grep -E 'plainly_because|\"reads\"|\"processes\"' said.json | head -3"
    );
    let scenario = scenario(name, &line)?;
    let mut verdict = Ok(());
    for _ in 0..3 {
        let told = scenario.run(&UNDER, runahead).map_err(|error| error.to_string())?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let reads = told.lines().find_map(|line| line.trim().strip_prefix("\"reads\": "));
        let reads: u64 = reads.and_then(|reads| reads.trim_end_matches(',').parse().ok()).unwrap_or(0);
        if told.contains("\"plainly_because\": null") && reads >= 50 {
            return Ok(());
        }
        verdict = Err(format!("not helped: {told}"));
    }
    verdict
}

const UNDER: Mode = Mode { name: "under", options: Some(&[]), cold: true };
