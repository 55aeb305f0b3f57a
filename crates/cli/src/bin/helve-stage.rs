//! The inner stage of the sandbox alone. It lies beside `helve`, which uses it because it starts faster than itself.

use std::io::{self, Write};

fn main() {
    helve_hosts::run_helper_if_requested();
    // Whoever asks is `helve`, which wants to know whether this is the stage that it was built with.
    _ = writeln!(io::stdout(), "{}", helve_hosts::helper_build_id());
}
