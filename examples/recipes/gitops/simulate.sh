#!/bin/bash
while read -r step; do
    echo "step $step"
    sleep 60
done <~/heat/input.txt
