//! Random histories of a read-write lock, by the module alone and together with Redisson's scripts ([`model`]).

mod model;
mod naive;
