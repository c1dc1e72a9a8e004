//! The read-write lock without a server: raw keys ([`world`]), a server around the core that reads and
//! writes them ([`sim`]), conversations with it ([`transcripts`]), and random histories, by the module
//! alone and together with Redisson's scripts ([`model`]).

mod model;
mod naive;
mod scripts;
mod sim;
mod transcripts;
mod world;
