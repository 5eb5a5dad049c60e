# Sourced by scripts that hold us against other people's packages: fetched, unpacked below a
# directory of the caller's, never installed.
# shellcheck shell=bash

# The URI and the name of this machine's own release, whatever mirror it is; nothing without one.
mirror() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016  # $(…) is apt's own syntax here
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v release="$codename" '$1 == release && $2 == "main" { uri = $3 } END { if (uri) print uri, release }'
}

# Leaves a Debian package's files in <place>. Releases are signed with bookworm's key too, so the
# signature is checked.
fetch_deb() ( # place uri release component package
    place=$1
    work=$(dirname "$place")/.$(basename "$place")
    rm -rf "$work"
    mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/out"
    echo "deb $2 $3 $4" >"$work/sources.list"
    options=(
        -o Dir::State="$work/state" -o Dir::State::status=/dev/null
        -o Dir::Cache="$work/cache"
        -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
        -o Acquire::Languages=none
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
        -o Acquire::Check-Valid-Until=false # sid on a mirror may lag; it is still signed
        -o Acquire::http::Timeout=30 -o Acquire::Retries=2
        -o APT::Sandbox::User="$(id -un)" # _apt may not be allowed into the checkout
    )
    cd "$work/out"
    apt-get "${options[@]}" -qq update &&
        apt-get "${options[@]}" -qq download "$5" &&
        dpkg-deb -x "$5"_*.deb "$work/root" &&
        mv "$work/root" "$place" &&
        rm -rf "$work"
)

# Leaves a wheel's files in <directory>/<package>-<version>, once; needs $python with pip.
fetch_wheel() { # directory package version
    local place=$1/$2-$3
    [ -e "$place/.done" ] && return
    mkdir -p "$place"
    "${python:-python3}" -m pip download --quiet --no-deps --only-binary :all: --dest "$place" \
        "$2==$3" >"$place/log" 2>&1 || return
    "${python:-python3}" -m zipfile -e "$place"/*.whl "$place" && rm "$place"/*.whl && touch "$place/.done"
}
