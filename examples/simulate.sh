#!/bin/bash
#SBATCH --ntasks=1
for step in $(seq "$STEPS"); do echo "simulating step $step"; done
