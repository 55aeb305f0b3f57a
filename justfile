# `just` lists the recipes.

default:
    @just --list

# Everything that CI checks.
ci:
    bash .ci/run

# Lints alone.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# All tests.
test *ARGS:
    cargo nextest run --workspace {{ARGS}}

# Accept the replies that the scenario pages got.
accept:
    UPDATE=1 cargo test -p helve-dialects --test it scenarios

# Write the generated pages anew.
docs:
    cargo run --quiet -- docs --write docs

# The escape race and the kill test with their full counts.
race:
    HELVE_RACE=50000 HELVE_KILLS=500 cargo test -p helve-hosts --test it -- race kill --nocapture

# Side-by-side benchmarks.
bench *ARGS:
    bash bench/run {{ARGS}}
