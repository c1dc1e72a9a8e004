//! Writes the program of docs/TASKS.md for Rust: its blocks, put into `rust-package/tasks.template`.

#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::indexing_slicing)]

#[allow(dead_code)]
#[path = "../harness/src/page.rs"]
mod page;

fn main() {
    let (document, template) = ("docs/TASKS.md", "tests/clients/rust-package/tasks.template");
    for path in [document, template] {
        println!(
            "cargo::rerun-if-changed={}",
            page::root().join(path).display()
        );
    }
    let program = page::program(document, "rust", &page::text(template));
    let out = std::env::var("OUT_DIR").expect("set by cargo");
    std::fs::write(format!("{out}/tasks.rs"), program).expect("a file");
}
