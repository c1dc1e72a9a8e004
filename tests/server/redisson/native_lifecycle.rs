//! Loading, unloading and panics of the module with Redisson's scripts run natively.

use crate::common::redisson::{ACQUIRE, UNLOCK};
use crate::common::scene::unload;
use crate::common::{module_path, wait_for, TestServer};
use crate::lifecycle::faults::fault_module;
use crate::redisson::native::{call, native, ON};
use crate::redisson::native_effects::acquire;

#[test]
fn the_module_is_unloaded_and_loaded_with_the_filter_on() {
    let server = native();
    let mut c = server.conn();
    assert!(c.run(acquire("u:1")).is_nil());
    wait_for("no module", || unload(&mut c));
    assert!(c.run(acquire("u:1")).is_nil(), "by Lua");
    let path = module_path();
    let load = ["MODULE", "LOADEX", path.to_str().unwrap()];
    let on = ["CONFIG", "lock.redisson-scripts", "yes"];
    assert_eq!(c.run([&load[..], &on].concat()).text(), "OK");
    assert!(c.run(acquire("u:1")).is_nil());
    assert_eq!(server.stat("redisson_rlock"), 1);
    wait_for("no module", || unload(&mut c));
    assert_eq!(c.run(load).text(), "OK");
    assert!(c.run(acquire("u:1")).is_nil());
    assert_eq!(server.stat("redisson_rlock"), 0, "off by default");
    c.line("CONFIG SET lock.redisson-scripts yes");
    assert!(c.run(acquire("u:1")).is_nil());
    assert_eq!(server.stat("redisson_rlock"), 1);
    assert_eq!(c.line("HGET k u:1").text(), "5");
}

#[test]
fn a_panic_in_the_filter_leaves_the_script_to_lua() {
    let server = TestServer::with_module(fault_module(), &ON);
    let mut c = server.conn();
    assert_eq!(c.line("LOCK.FAULT filter").text(), "OK");
    // Other commands leave the filter before.
    c.line("HSET hash a 1 b 2");
    assert_eq!(server.stat("panics"), 0);
    assert!(c.run(acquire("u:1")).is_nil());
    assert_eq!(
        (server.stat("panics"), server.stat("redisson_rlock")),
        (1, 0)
    );
    assert!(c.run(acquire("u:1")).is_nil());
    assert_eq!(server.stat("redisson_rlock"), 1);
    assert_eq!(c.line("HGET k u:1").text(), "2");
}

#[test]
fn a_panic_in_a_native_script_is_answered() {
    let server = TestServer::with_module(fault_module(), &ON);
    let mut c = server.conn();
    assert!(c.run(call("EVALSHA", ACQUIRE, "1 k 600000 u:1")).is_nil());
    c.send_lines(&["MULTI", "LOCK.FAULT command"]);
    c.send(call(
        "EVALSHA",
        UNLOCK,
        "3 k c latch 0 600000 u:1 PUBLISH 13500",
    ));
    c.send_line("EXEC");
    let replies: Vec<_> = (0..4).map(|_| c.recv()).collect();
    let failed = replies[3].list()[1].error();
    assert!(failed.starts_with("ERR internal error "), "{failed}");
    assert_eq!(c.line("HGET k u:1").text(), "1");
    assert_eq!(server.stat("panics"), 1);
}
