//! The look-up of the primary at the sentinels, one after another.

use redis::{cmd, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, Value};
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::net::address::{address_like, name_of, Address};
use crate::net::connection::Connector;

/// The address of the primary of this name, from the first sentinel that knows one. The look-up starts with sentinel
/// number `first`.
pub(crate) async fn primary(
    connector: &Connector,
    address: &Address,
    login: &RedisConnectionInfo,
    name: &str,
    first: usize,
) -> Result<ConnectionAddr> {
    // Their login is that of the URL.
    let connector = &Connector {
        credentials: None,
        ..connector.clone()
    };
    let login = address.login.clone().set_redis_settings(login.clone());
    let unknown = || {
        let what = format!("no sentinel knows a primary of the name '{name}'");
        Error::config(format!("{}: {what}", address.name))
    };
    let count = address.seeds.len().max(1);
    // An unresponsive sentinel leaves time for the others.
    let patience = connector.patience / u32::try_from(count + 1).unwrap_or(u32::MAX);
    let mut failure = None;
    for seed in address.seeds.iter().cycle().skip(first % count).take(count) {
        let sentinel = login.clone().set_addr(seed.clone());
        let asked = timeout(patience, ask(connector, &sentinel, name)).await;
        match asked.unwrap_or_else(|_| Err(Error::no_answer(&name_of(&sentinel)))) {
            Ok(Some(address)) => return Ok(address),
            // This sentinel may have just started; a connection error of another one is reported instead.
            Ok(None) => failure = failure.or_else(|| Some(unknown())),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(unknown))
}

async fn ask(
    connector: &Connector,
    sentinel: &ConnectionInfo,
    name: &str,
) -> Result<Option<ConnectionAddr>> {
    let mut connection = connector.open(sentinel, None).await?;
    let words = ["GET-MASTER-ADDR-BY-NAME", name];
    let failed = |error| match Error::new(&name_of(sentinel), error) {
        Error::Refused { server, code, text }
            if code == "ERR" && text.starts_with("unknown command") =>
        {
            Error::config(format!("{server} is no sentinel"))
        }
        error => error,
    };
    let reply = connection.send(cmd("SENTINEL").arg(&words)).await;
    let reply = reply.and_then(Value::extract_error).map_err(failed)?;
    if reply == Value::Nil {
        return Ok(None);
    }
    let (host, port): (String, u16) =
        redis::from_redis_value(reply).map_err(|_| Error::reply(&name_of(sentinel)))?;
    Ok(Some(address_like(sentinel.addr(), &host, port)))
}
