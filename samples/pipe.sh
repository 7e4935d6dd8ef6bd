#!/bin/sh
# For each sentence: which token gets the most weight from the last one? Needs jq.
# Run it where `attnscope` is on the path: PATH=".venv/bin:$PATH" sh samples/pipe.sh
set -eu
cd "$(dirname "$0")/sentences"
for sentence in english chinese arabic emoji; do
    attnscope run --file "$sentence.txt" --causal --json |
        jq -r --arg name "$sentence" '
            (.heads[0].weights[-1] | to_entries | max_by(.value)) as $top
            | "\($name): \(.tokens[-1].label) → \(.tokens[$top.key].label) \($top.value)"'
done
