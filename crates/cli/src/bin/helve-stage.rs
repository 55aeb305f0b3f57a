//! The sandbox init helper as a separate program. `helve` prefers it because it starts faster.

use std::io::{self, Write};

fn main() {
    helve_hosts::run_helper_if_requested();
    // `helve` asks for the version, to check that both were built from the same sources.
    _ = writeln!(io::stdout(), "{}", helve_hosts::helper_build_id());
}
