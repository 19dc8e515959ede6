# about: fsx: random reads, writes, mappings and truncations of a file, everything checked
# command: cargo cargo
# user: nobody
# limit: 120
PROGRAM=$CONFORMANCE/crates/bin/fsx

build() { cargo install -q --root "$CONFORMANCE/crates" --version 0.3.2 fsx; }

# A case is a seed.
cases() { seq 1 24; }

run() { exec "$PROGRAM" -N 3000 -S "$1" -P . file; }

cold() { program_files; echo "$PROGRAM"; }
