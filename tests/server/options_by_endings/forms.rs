//! The forms of requests that can wait, from the server's own lists: the commands that `COMMAND INFO` calls blocking,
//! and their options by `COMMAND DOCS`.

use crate::common::{Conn, Reply};

/// What is known of a command beside its options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Lock,
    Many,
    Semaphore,
    Latch,
}

impl Kind {
    /// The kind that a command waits for.
    fn of(command: &str) -> Kind {
        match command {
            "lock.acquire" => Kind::Lock,
            "lock.macquire" => Kind::Many,
            "sem.acquire" => Kind::Semaphore,
            "latch.wait" => Kind::Latch,
            other => panic!("{other} can block: add its kind here, with the steps of `Cell`"),
        }
    }
}

/// A request with its options, and what it waits behind.
#[derive(Clone, Debug)]
pub struct Form {
    pub kind: Kind,
    /// Its options, each with its value, without `BLOCK` and `NOTIFY`.
    pub options: Vec<Words>,
    pub is_ticket: bool,
    /// Whether the holder is a string of another library.
    pub is_behind_string: bool,
}

/// An option with its value.
pub type Words = Vec<String>;

impl Form {
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|words| words[0] == option)
    }

    /// Whether the wait ends with the connection that asked.
    pub fn is_bound(&self) -> bool {
        self.has("SESSION")
    }

    /// `READ` or `WRITE`: with the keys beside a lock.
    pub fn has_mode(&self) -> bool {
        self.has("READ") || self.has("WRITE")
    }

    /// Whether a grant is a hold.
    pub fn holds(&self) -> bool {
        self.kind != Kind::Latch
    }

    /// Whether an owner names the request.
    pub fn has_owner(&self) -> bool {
        self.kind != Kind::Latch
    }
}

/// The value of a sample for each option that has one. The number of `SEQ` is that of [`FINAL`].
fn sample(token: &str) -> Vec<&'static str> {
    match token {
        "EX" => vec!["600"],
        "PX" => vec!["600000"],
        "SEQ" => vec![FINAL],
        "LIMIT" => vec!["1"],
        "COUNT" => vec!["2"],
        "QUEUE" => vec!["9"],
        "NOTE" => vec![NOTE],
        other => panic!("no sample of the value of {other}: add it here"),
    }
}

/// The number of each acquisition.
pub const FINAL: &str = "5";

/// A note that is longer than a place, so that one that is forgotten shows.
const NOTE: &str = "a-note-of-two-hundred-bytes-or-more-0123456789-0123456789-0123456789-0123456789-0123456789-\
0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-";

/// The words of how a request waits, which every form has.
const WAITING: [&str; 2] = ["BLOCK", "NOTIFY"];

/// The groups of a command's options: those of a group exclude each other.
fn groups(conn: &mut Conn, command: &str) -> Vec<Vec<Words>> {
    let docs = conn.run(["COMMAND", "DOCS", command]);
    let docs = docs.field(command).expect("the docs");
    let arguments = docs.field("arguments").expect("arguments").list();
    let groups = arguments.iter().map(options_of);
    groups.filter(|group| !group.is_empty()).collect()
}

/// The options of an argument: itself, or its alternatives.
fn options_of(argument: &Reply) -> Vec<Words> {
    let text = |name: &str| argument.field(name).map(|field| field.text());
    if matches!(text("type").as_deref(), Some("oneof" | "block")) {
        let parts = argument.field("arguments").expect("parts").list();
        return parts.iter().flat_map(options_of).collect();
    }
    let Some(word) = text("token").filter(|word| !WAITING.contains(&word.as_str())) else {
        return Vec::new();
    };
    let values = match text("type").as_deref() {
        Some("pure-token") => Vec::new(),
        _ => sample(&word),
    };
    let words = std::iter::once(word).chain(values.into_iter().map(String::from));
    vec![words.collect()]
}

/// Whether the command takes these options together, by its own judgement.
fn are_taken(conn: &mut Conn, kind: Kind, options: &[Words]) -> bool {
    let mut words: Words = match kind {
        Kind::Lock => vec!["LOCK.ACQUIRE", "probe", "owner"],
        Kind::Many => vec!["LOCK.MACQUIRE", "1", "probe", "owner"],
        Kind::Semaphore => vec!["SEM.ACQUIRE", "probe", "owner"],
        Kind::Latch => vec!["LATCH.WAIT", "probe"],
    }
    .into_iter()
    .map(String::from)
    .collect();
    words.extend(options.iter().flatten().cloned());
    words.extend(["BLOCK", "1"].map(String::from));
    let reply = conn.run(&words);
    assert!(!conn.line("FLUSHALL").is_error());
    !(reply.is_error() && reply.error().contains("syntax error"))
}

/// As many options of the groups, in this order, as the command takes together: of each group the one of this number.
fn together(conn: &mut Conn, kind: Kind, groups: &[&Vec<Words>], number: usize) -> Vec<Words> {
    let mut options: Vec<Words> = Vec::new();
    for group in groups {
        options.push(group[number % group.len()].clone());
        if !are_taken(conn, kind, &options) {
            options.pop();
        }
    }
    options
}

/// All forms of all commands that can block their client.
pub fn all(conn: &mut Conn) -> Vec<Form> {
    let names = conn.line("COMMAND LIST FILTERBY MODULE lock").list();
    let mut forms = Vec::new();
    for name in names.iter().map(Reply::text) {
        let info = conn.run(["COMMAND", "INFO", &name]).list()[0].list();
        let flags = info[2].list();
        if !flags.iter().any(|flag| flag.text() == "blocking") {
            continue;
        }
        let kind = Kind::of(&name);
        let groups = groups(conn, &name);
        let mut sets = vec![Vec::new()];
        sets.extend(groups.iter().flatten().map(|option| vec![option.clone()]));
        let most = groups.iter().map(Vec::len).max().unwrap_or(0);
        for number in 0..most {
            let forwards: Vec<_> = groups.iter().collect();
            let backwards: Vec<_> = groups.iter().rev().collect();
            for order in [forwards, backwards] {
                let mut options = together(conn, kind, &order, number);
                options.sort();
                if !sets.contains(&options) {
                    sets.push(options);
                }
            }
        }
        for options in sets {
            for is_ticket in [false, true] {
                let form = Form {
                    kind,
                    options: options.clone(),
                    is_ticket,
                    is_behind_string: false,
                };
                let is_exclusive = matches!(kind, Kind::Lock | Kind::Many) && !form.has_mode();
                if is_exclusive {
                    forms.push(Form {
                        is_behind_string: true,
                        ..form.clone()
                    });
                }
                forms.push(form);
            }
        }
    }
    assert!(forms.len() > 50, "{forms:?}");
    forms
}
