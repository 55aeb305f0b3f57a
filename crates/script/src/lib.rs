//! A model that follows a script: a server in OpenAI's wire format for tests. It streams, it fails on purpose, and it
//! remembers what it was asked.
