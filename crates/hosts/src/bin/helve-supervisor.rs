//! A binary that is nothing but the inner stage: what tests put between themselves and the commands they run.

fn main() {
    helve_hosts::run_helper_if_requested();
}
