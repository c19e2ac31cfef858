# Watches over one PostgreSQL server: carries out what it reads, and when there is no more to read, stops the
# server and removes its folder. Each command is answered by what was said, and then by `done` or `failed`.
bin=$1
folder=$2
data=$folder/data
settings=

# Whoever asked may be gone before the answer.
trap '' PIPE
umask 077

init() {
    mkdir "$folder" && cd "$folder" &&
        "$bin/initdb" -D "$data" -U postgres -A trust --encoding=UTF8 --locale=C --no-sync || return
    for guest in $1; do
        echo "host all all $guest/32 trust" >>"$data/pg_hba.conf"
    done
}

start() {
    : >"$folder/log"
    "$bin/pg_ctl" -D "$data" -l "$folder/log" -o "$settings" -w start && return
    cat "$folder/log"
    return 1
}

stop() {
    "$bin/pg_ctl" -D "$data" -m "$1" -w stop
}

restart() {
    if "$bin/pg_ctl" -D "$data" status; then
        stop "$1" || return
    fi
    start
}

while read -r command argument; do
    case $command in
    start) settings=$argument ;;
    esac
    # The server has to have neither end of the pipes.
    if said=$("$command" "$argument" 2>&1 </dev/null); then
        echo "done"
    else
        printf '%s\nfailed\n' "$said"
    fi
done

stop immediate >/dev/null 2>&1
cd / && rm -rf "$folder"
