//! The manual page, generated from the definitions of the options.

use std::io::{self, Write};

use clap_mangen::Man;

use crate::failure::{Failure, OS};

/// The manual as troff: one page, in which each subcommand has a section.
pub fn manual(program: clap::Command) -> Result<i32, Failure> {
    let page = page(program).map_err(|error| Failure::new(OS, error))?;
    let written = io::stdout().write_all(&page);
    written.map_err(|error| Failure::new(OS, error))?;
    Ok(0)
}

fn page(program: clap::Command) -> io::Result<Vec<u8>> {
    let mut command = program.disable_help_subcommand(true);
    command.build();
    let subcommands: Vec<clap::Command> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .cloned()
        .collect();
    let mut page = Vec::new();
    let man = Man::new(command);
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    for subcommand in subcommands {
        let name = subcommand.get_name().to_uppercase();
        page.extend(format!(".SH \"REDIS-LOCK {name}\"\n").bytes());
        page.extend(section(subcommand)?.bytes());
    }
    page.extend(REST.bytes());
    Ok(page)
}

/// The sections of a subcommand, one level lower.
fn section(subcommand: clap::Command) -> io::Result<String> {
    let mut section = Vec::new();
    let man = Man::new(subcommand);
    man.render_synopsis_section(&mut section)?;
    man.render_description_section(&mut section)?;
    man.render_options_section(&mut section)?;
    if man.render_extra_section(&mut section).is_err() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let section = String::from_utf8_lossy(&section).replace(".SH EXTRA\n", ".SH \"EXIT STATUS\"\n");
    Ok(section.replace(".SH ", ".SS "))
}

const REST: &str = r#".SH ENVIRONMENT
.TP
\fBREDIS_LOCK_URL\fR
The server, where no \-\-server is given; several are separated by spaces.
.TP
\fBREDISCLI_AUTH\fR
The password, where the URL has none.
.TP
\fBLOCK_KEY\fR, \fBLOCK_OWNER\fR, \fBLOCK_TOKEN\fR
Set for the command of \fBrun\fR: the key (unless it contains a NUL), the owner, the fencing token
(with \-\-quorum the highest; not with \-\-all). Pass the token to the resource that the lock protects, which has to
refuse lower ones.
.TP
\fBLOCK_KEY_HEX\fR
Set for the command of \fBrun\fR: the key in hexadecimal, as \-\-key\-hex takes it.
.TP
\fBLOCK_TOKENS\fR
Set for the command of \fBrun\fR with several servers: the token of each, as
\fIserver\fR=\fItoken\fR, separated by spaces.
.SH EXAMPLES
.nf
redis\-lock run nightly \-\- /usr/local/bin/report
redis\-lock run \-n \-E 0 nightly \-\- /usr/local/bin/report    # another one is at it: fine
redis\-lock run \-\-wait 60 \-\-lease 10 deploy \-\- sh \-c 'deploy \-\-fence "$LOCK_TOKEN"'
redis\-lock ls \-\-waited
redis\-lock info nightly \-\-json
redis\-lock ls \-\-graph
redis\-lock watch nightly \-\-json
redis\-lock top
.fi
.SH SEE ALSO
.BR flock (1)
"#;
