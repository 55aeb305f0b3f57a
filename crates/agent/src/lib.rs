//! The agent: a loop that talks to a model and gives it hands through [`Engine`](helve_engine::Engine).
