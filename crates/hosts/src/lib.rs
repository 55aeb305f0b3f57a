//! hosts.
