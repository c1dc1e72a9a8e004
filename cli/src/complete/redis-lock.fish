# Completions of redis-lock for fish: redis-lock itself says what comes next.
function __redis_lock
    set -l words (commandline -opc) (commandline -ct)
    set -l out ($words[1] complete -- $words 2>/dev/null)
    switch "$out[1]"
        case :files
            __fish_complete_path (commandline -ct)
        case ':command *'
            set -l first (math (string replace ':command ' '' -- $out[1]) + 1)
            set -l rest
            test $first -lt (count $words); and set rest (string escape -- $words[$first..-2])
            complete -C (string join ' ' -- $rest (commandline -ct))
        case '?*'
            printf '%s\n' $out
    end
end
complete -c redis-lock -f -a '(__redis_lock)'
