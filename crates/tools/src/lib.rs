//! Every built-in tool, one file each. They know only the contract; files and programs come from the ports of a call.

pub mod fs;
pub mod shell;

#[cfg(test)]
mod testing;
