# Red Box. `make` lists the targets; each makes first what it needs (deploy/bootstrap, deploy/local/bed).
.DEFAULT_GOAL := list
.PHONY: list demo test lint unit e2e nightly conformance fuzz bench figures bed-up bed-down bed-status bed-shell generate lock venv docs release
HOST ?= login

list: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-24s %s\n", $$1, $$2 }' Makefile

demo: ## start the bed and show what Red Box does on it
	@deploy/demo

test: ## lint, unit and e2e: all that must hold before a merge
	@tests/run

lint: ## style, types, who may import whom
	@tests/run lint

unit: ## the tests that need no bed
	@tests/run unit

e2e: ## the tests on the bed, which is started if it is not up
	@tests/run e2e

nightly: ## all tests, with what is rare and takes long: other releases, packages, long storms, conformance
	@TEST_NIGHTLY=1 tests/run; ended=$$?; .venv/bin/python -m tests.conformance && exit $$ended

conformance: venv ## Kubernetes' own [Conformance] cases on virtual nodes (SHORT=1 for 20 of them, ONLY=words in a name)
	@.venv/bin/python -m tests.conformance $(if $(SHORT),--short) $(if $(ONLY),--only '$(ONLY)')

fuzz: venv ## hostile frames, requests, rows and archives for SECONDS=3600 (ONLY=target, SEED=n), other ones each time
	@.venv/bin/python -m tests.fuzz $(or $(SECONDS),3600) $(addprefix --only ,$(ONLY)) $(addprefix --seed ,$(SEED))

bench: venv ## the benchmarks, on the bed (ONLY=name for one, SHORT=1 for 15 minutes of them, RESUME=1 to go on)
	@.venv/bin/python -m tests.bench $(if $(ONLY),--only $(ONLY)) $(if $(SHORT),--short) $(if $(RESUME),--resume)

figures: venv ## publish build/bench.json and build/conformance.json in docs/reference
	@.venv/bin/python -m tests.bench.publish
	@.venv/bin/python -m tests.conformance.publish

bed-up: ## start a real Slurm and a real Kubernetes on this machine
	@deploy/local/bed up

bed-down: ## end them and leave nothing behind
	@deploy/local/bed down

bed-status: ## what of the bed runs
	@deploy/local/bed status

bed-shell: ## a shell on one of the bed's hosts (HOST=login)
	@deploy/local/bed exec $(HOST) bash -l

generate: venv ## make anew what is generated and checked for drift (docs/reference/openapi.json, the chart's files)
	@.venv/bin/redbox openapi > docs/reference/openapi.json
	@.venv/bin/python deploy/generate.py

lock: venv ## choose anew the versions in requirements.lock from pyproject.toml (UPGRADE=1: the newest)
	@.venv/bin/uv pip compile pyproject.toml --quiet --all-extras --group dev --group docs --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) \
		--output-file requirements.lock
	@.venv/bin/uv pip compile pyproject.toml --quiet --extra server --universal --python-version 3.11 \
		--constraint requirements.lock --generate-hashes --no-emit-index-url \
		--custom-compile-command 'make lock' --output-file deploy/local/server.lock
	@.venv/bin/uv pip compile pyproject.toml --quiet --extra operator --extra resourced --python-version 3.13 \
		--python-platform linux --constraint requirements.lock --generate-hashes --no-emit-index-url \
		--custom-compile-command 'make lock' --output-file deploy/images/controllers.lock
	@.venv/bin/uv pip compile tests/e2e/recipes/snakemake.in --quiet --python-version 3.13 --python-platform linux \
		--only-binary :all: --no-binary connection-pool --generate-hashes --no-emit-index-url \
		--custom-compile-command 'make lock' --output-file tests/e2e/recipes/snakemake.lock
	@.venv/bin/uv pip compile tests/e2e/recipes/jupyter.in --quiet --python-version 3.13 --python-platform linux \
		--only-binary :all: --generate-hashes --no-emit-index-url \
		--custom-compile-command 'make lock' --output-file tests/e2e/recipes/jupyter.lock
	@.venv/bin/uv pip compile tests/e2e/recipes/browser.in --quiet --python-version 3.11 --python-platform linux \
		--only-binary :all: --generate-hashes --no-emit-index-url \
		--custom-compile-command 'make lock' --output-file tests/e2e/recipes/browser.lock

docs: venv ## the site of the documentation, in build/site/site, every link checked (needs npm the first time)
	@.venv/bin/python -m redbox_release site

release: venv ## what is published, in dist/: wheel, packages, images, chart, manifests, SBOM, checksums
	@.venv/bin/python -m redbox_release dist

venv: ## .venv, from requirements.lock
	@deploy/bootstrap
