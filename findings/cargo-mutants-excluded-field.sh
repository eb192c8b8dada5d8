#!/usr/bin/env bash
# Exclusions of cargo-mutants, and mutants of struct fields.
#
# Version: cargo-mutants 27.1.0, built by cargo. Seen on 2026-12-01.
# Guess: `exclude_re` leaves out each mutant whose name in `--list` matches, as the documentation of the setting says.
# Seen:  a mutant that deletes a field of a struct expression with a base stays in the list, also with the pattern `.`, which leaves
#        out all others. `--re` does not select such mutants either: they are always listed.
# Effect: the survivors of fields cannot be justified in `.cargo/mutants.toml`. Only `#[mutants::skip]`, or a file that is left out
#         as a whole, removes them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cargo install --quiet --locked --root "$folder" cargo-mutants@27.1.0
mkdir -p "$folder/crate/src"
cd "$folder/crate"
printf '[package]\nname = "probe"\nversion = "0.1.0"\nedition = "2024"\n' >Cargo.toml
cat >src/lib.rs <<'RS'
#[derive(Default)]
pub struct Limits {
    pub messages: u32,
    pub bytes: u32,
}

pub fn limits() -> Limits {
    Limits { messages: 10, ..Limits::default() }
}

pub fn is_full(messages: u32) -> bool {
    messages >= limits().messages
}
RS
listed() { "$folder/bin/cargo-mutants" mutants --list "$@" | sed 's/^[^ ]* //' | tr '\n' ';'; }
all=$(listed) none=$(listed --exclude-re .) other=$(listed --re is_full)
field='delete field messages from struct Limits expression in limits;'
printf 'all: %s\nwithout all: %s\nof is_full: %s\n' "$all" "$none" "$other"
[[ $all == *"$field"*"replace is_full"* ]]
[[ $none == "$field" ]]
[[ $other == *"$field"* && $other == *"replace >= with <"* ]]
