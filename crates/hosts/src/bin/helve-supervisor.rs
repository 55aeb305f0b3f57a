//! Test binary that is only the sandbox init helper. Tests put it between themselves and the commands that they run.

fn main() {
    helve_hosts::run_helper_if_requested();
}
