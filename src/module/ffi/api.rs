//! Functions of the server, looked up when the module is loaded, and calls of those that can fail.
//!
//! `redis-module` keeps each function as an optional pointer. The list in [`first_missing`] has those of every
//! supported server, and is checked once, at load. A function newer than Redis 7.0 is checked where it is called. In a
//! build for the tests `LOCK.FAULT API function` makes one call of a function that can fail do so: see
//! [`super::fault`].

use redis_module::raw;

/// The pointer of a function that was checked at load.
macro_rules! api {
    ($name:ident) => {
        match redis_module::raw::$name {
            Some(function) => function,
            None => $crate::module::ffi::api::missing(stringify!($name)),
        }
    };
}
pub(crate) use api;

/// Whether the server has a function: for those newer than Redis 7.0.
macro_rules! has {
    ($name:ident) => {{
        // SAFETY: the pointers are written once, by `Export_RedisModule_Init`, on the main thread, before any other
        // code of the module runs.
        let function = unsafe { redis_module::raw::$name };
        function.is_some()
    }};
}
pub(crate) use has;

/// Unreachable after the check at load; the guard of the entry turns it into an error reply.
pub(crate) fn missing(name: &str) -> ! {
    panic!("{name} is missing")
}

macro_rules! required {
    ($($name:ident)+) => {
        /// The first function of Redis 7.0 that this server does not have.
        pub(crate) fn first_missing() -> Option<&'static str> {
            $(if !has!($name) { return Some(stringify!($name)); })+
            None
        }
    };
}

required! {
    RedisModule_Alloc RedisModule_Free RedisModule_Log RedisModule_CreateCommand RedisModule_GetCommand
    RedisModule_SetCommandInfo RedisModule_SetModuleOptions RedisModule_RegisterNumericConfig
    RedisModule_RegisterBoolConfig RedisModule_LoadConfigs RedisModule_RegisterInfoFunc
    RedisModule_InfoAddSection RedisModule_InfoAddFieldULongLong
    RedisModule_InfoBeginDictField RedisModule_InfoEndDictField RedisModule_CreateString
    RedisModule_FreeString RedisModule_StringPtrLen RedisModule_OpenKey
    RedisModule_CloseKey RedisModule_KeyType RedisModule_ValueLength RedisModule_DeleteKey RedisModule_UnlinkKey
    RedisModule_GetAbsExpire RedisModule_SetAbsExpire RedisModule_HashGet RedisModule_HashSet
    RedisModule_ScanKey RedisModule_ScanCursorCreate RedisModule_ScanCursorDestroy
    RedisModule_ZsetAdd RedisModule_ZsetRem RedisModule_ZsetScore RedisModule_ZsetFirstInScoreRange
    RedisModule_ZsetLastInScoreRange
    RedisModule_ZsetRangeCurrentElement RedisModule_ZsetRangeNext RedisModule_ZsetRangeEndReached
    RedisModule_ZsetRangeStop RedisModule_StringDMA RedisModule_StringSet RedisModule_SignalModifiedKey
    RedisModule_Replicate RedisModule_ReplicateVerbatim
    RedisModule_NotifyKeyspaceEvent RedisModule_GetNotifyKeyspaceEvents RedisModule_PublishMessage RedisModule_PublishMessageShard
    RedisModule_Call RedisModule_CallReplyType RedisModule_FreeCallReply RedisModule_CallReplyStringPtr RedisModule_CallReplyProto
    RedisModule_CallReplyLength RedisModule_CallReplyInteger RedisModule_CallReplyArrayElement RedisModule_BlockClientOnKeys
    RedisModule_UnblockClient RedisModule_SetDisconnectCallback RedisModule_GetBlockedClientPrivateData
    RedisModule_BlockedClientDisconnected RedisModule_DeauthenticateAndCloseClient
    RedisModule_CreateTimer RedisModule_StopTimer RedisModule_SubscribeToKeyspaceEvents
    RedisModule_SubscribeToServerEvent RedisModule_GetContextFlags RedisModule_GetContextFlagsAll RedisModule_AvoidReplicaTraffic
    RedisModule_GetSelectedDb RedisModule_SelectDb RedisModule_GetClientId RedisModule_GetClientInfoById
    RedisModule_GetClientUserNameById
    RedisModule_GetCurrentUserName RedisModule_GetModuleUserFromUserName RedisModule_FreeModuleUser
    RedisModule_ACLCheckCommandPermissions RedisModule_ACLCheckKeyPermissions RedisModule_ACLAddLogEntry RedisModule_MonotonicMicroseconds
    RedisModule_ReplyWithLongLong RedisModule_ReplyWithNull RedisModule_ReplyWithNullArray RedisModule_ReplyWithError
    RedisModule_ReplyWithStringBuffer RedisModule_ReplyWithArray RedisModule_ReplyWithMap
    RedisModule_RegisterCommandFilter RedisModule_UnregisterCommandFilter RedisModule_CommandFilterArgsCount
    RedisModule_CommandFilterArgGet RedisModule_CommandFilterArgReplace RedisModule_ReplyWithCallReply
    RedisModule_GetServerVersion RedisModule_GetServerInfo RedisModule_GetCommandKeys
    RedisModule_ServerInfoGetFieldC RedisModule_FreeServerInfo
    RedisModule_GetDetachedThreadSafeContext RedisModule_FreeThreadSafeContext
}

/// Calls a function that can fail; `$failure` is its result when it fails. A build for the tests can make it fail once
/// (`LOCK.FAULT API function`): then the function is not called.
macro_rules! fallible {
    ($name:ident($($argument:expr),* $(,)?), $failure:expr) => {
        match $crate::module::ffi::fault::is_hit(stringify!($name)) {
            true => $failure,
            false => $crate::module::ffi::api::api!($name)($($argument),*),
        }
    };
}
pub(crate) use fallible;

/// A refusal of the server: the function that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(pub &'static str);

/// The result of a write.
pub type Written = Result<(), Refused>;

/// Calls a function that returns a status. A status other than OK is a refusal.
macro_rules! checked {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        const OK: i32 = redis_module::raw::REDISMODULE_OK as i32;
        const ERR: i32 = redis_module::raw::REDISMODULE_ERR as i32;
        match $crate::module::ffi::api::fallible!($name($($argument),*), ERR) {
            OK => Ok(()),
            _ => Err($crate::module::ffi::api::Refused(stringify!($name))),
        }
    }};
}
pub(crate) use checked;

/// A type of which all zero is a valid value.
///
/// # Safety
/// The all-zero bit pattern is a valid value of the type.
pub(crate) unsafe trait Zeroable {}

// SAFETY: integers, nullable pointers and unions of structs of integers: all zero is valid for each.
unsafe impl Zeroable for raw::RedisModuleCommandKeySpec {}
// SAFETY: integers and nullable pointers: all zero is valid for each.
unsafe impl Zeroable for raw::RedisModuleCommandArg {}
// SAFETY: integers and arrays of them: all zero is valid for each.
unsafe impl Zeroable for raw::RedisModuleClientInfo {}

/// The all-zero value.
pub(crate) fn zeroed<T: Zeroable>() -> T {
    // SAFETY: `Zeroable` promises that all zero is a value of the type.
    unsafe { std::mem::zeroed() }
}
