//! Constants of Valkey that the bindings of `redis-module`, made from Redis' header, do not have.
//!
//! `build.rs` generates them with bindgen from `headers/valkeymodule.h`, under the header's names.

include!(concat!(env!("OUT_DIR"), "/valkeymodule.rs"));
