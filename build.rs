//! Generates the constants of Valkey that the bindings of `redis-module` lack: that crate makes its own from the header
//! of Redis. The result is included by `src/module/ffi/valkey.rs`.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

use bindgen::callbacks::{IntKind, ParseCallbacks};
use bindgen::{Builder, Formatter};

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
    // Beside this file and not beside Cargo.toml: tests/fuzz has a manifest of its own and builds by this script too.
    let root = Path::new(file!()).parent().unwrap_or(Path::new(""));
    let header = root.join("src/module/ffi/headers/valkeymodule.h");
    let header = header
        .to_str()
        .ok_or("the path of the clone is not UTF-8")?;
    println!("cargo::rerun-if-changed=build.rs");
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
