//! The inner stage of the sandbox alone. It lies beside `helve`, which uses it because it starts faster than itself.

use std::io::{self, Write};

fn main() {
    helve_hosts::inner_stage();
    // Whoever asks is `helve`, which wants to know whether this is the stage that it was built with.
    _ = writeln!(io::stdout(), "{}", helve_hosts::stage_edition());
}
