//! Generates the constants of Valkey that the bindings of `redis-module` lack: that crate makes its own from the header
//! of Redis. The result is included by `src/module/entry/slots.rs`.

use std::env;
use std::error::Error;
use std::path::PathBuf;

use bindgen::callbacks::{IntKind, ParseCallbacks};
use bindgen::{Builder, Formatter};

/// The header, from the root of the repository.
const HEADER: &str = "src/module/ffi/headers/valkeymodule.h";

/// The constants that are used. Each has the type of the parameter or field of `redis-module` that it is for.
const EVENTS: &str = "VALKEYMODULE_(SUB)?EVENT_ATOMIC_SLOT_MIGRATION(_(IM|EX)PORT_COMPLETED)?";
const OPTIONS: &str = "VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION";

#[derive(Debug)]
struct Types;

impl ParseCallbacks for Types {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        Some(match name.starts_with("VALKEYMODULE_OPTIONS_") {
            true => IntKind::Int,
            false => IntKind::U64,
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Not beside Cargo.toml: tests/fuzz and tests/fault-module, which have their own, build by this script too.
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let mut headers = manifest.ancestors().map(|dir| dir.join(HEADER));
    let header = headers
        .find(|header| header.is_file())
        .ok_or("no header of Valkey")?;
    let header = header
        .to_str()
        .ok_or("the path of the clone is not UTF-8")?;
    let bindings = Builder::default()
        .header(header)
        .allowlist_var(EVENTS)
        .allowlist_var(OPTIONS)
        .parse_callbacks(Box::new(Types))
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .formatter(Formatter::None)
        .generate()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    bindings.write_to_file(out.join("valkeymodule.rs"))?;
    Ok(())
}
