"""`inferometer plan`, `profiles` and `init`: check plans, show them with all defaults, print their schema; the
built-in plans; and a commented plan to start from."""

import click

from inferometer.cli.options import all_flags, change_option, json_option, set_option, work_in

SHOW_EXAMPLES = """\b
Examples:
  inferometer plan show plan.yaml
      a plan with all its defaults
  inferometer plan show sanity_random.yaml.in -o min=20,total_count=200
      a template of llm-d as a plan, with the changes of -o
  inferometer plan show -- vllm bench serve --random-input-len 1000 --request-rate 4
      another tool's command line as a plan
  inferometer plan show --explain config.yml
      every key of another tool's file, and how it was translated
  inferometer plan show -- guidellm benchmark run --target http://host:8000 --rate-type sweep --data prompt_tokens=256
      a command line that makes several runs, as an experiment
"""


@click.group()
def plan() -> None:
    """Check plans, show them with all defaults, print their schema."""


@plan.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@work_in("inferometer.cli.work.plan:check")
def check() -> None:
    """Report all errors in each FILE, a plan or an experiment; exit code 2 if there are any."""


@plan.command("show", epilog=SHOW_EXAMPLES)
@click.argument("args", metavar="FILE", nargs=-1, required=True, type=click.Path())
@change_option
@set_option
@click.option("--full", is_flag=True, help="Show every setting, also for plans of other tools.")
@click.option(
    "--explain", is_flag=True, help="For another tool's plan: list every key with the settings that it became."
)
@work_in("inferometer.cli.work.plan:show_plan")
def show_plan() -> None:
    """Print the plan in FILE with all defaults.

    FILE may be a profile's name, another tool's file, or after `--` another tool's command line. Plans of other tools
    are converted; settings without a counterpart are listed in comments. A file that makes several runs is printed as
    an experiment.
    """


@plan.command("audit")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@json_option
@work_in("inferometer.cli.work.plan:audit_plans")
def audit_plans() -> None:
    """Check how all plans and commands of other tools in FOLDER are converted: understood, refused, or wrong.

    Configurations, templates and suites are recognised by their content, commands in .txt, .md, .rst and .sh files.
    Each is converted and checked, and converted again with one key left out at a time: if a key changes nothing and no
    note says so, the conversion is wrong. Exit code 1 if any is wrong.
    """


@plan.command()
@click.option("--experiment", is_flag=True, help="Print the schema of an experiment.")
@work_in("inferometer.cli.work.plan:schema")
def schema() -> None:
    """Print the JSON schema of a plan, for editors."""


# -- profiles --------------------------------------------------------------------------------------------------------
EXAMPLES = """\b
Examples:
  inferometer profiles
      list all plans with their folders
  inferometer profiles chat > chat.yaml
      print a plan, to change it
  inferometer run chat --url http://localhost:8000
      run a plan by name
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", required=False)
@work_in("inferometer.cli.work.init:list_profiles")
def list_profiles() -> None:
    """List the built-in plans and your own profiles, or print the one called NAME.

    Your own folders are searched first: those in $INFEROMETER_PROFILES, ./profiles, and
    ~/.config/inferometer/profiles. A file there overrides the built-in plan of the same name.
    """


INIT_EXAMPLES = """\b
Examples:
  inferometer init
      write plan.yaml, which measures the built-in simulator
  inferometer init nightly.yaml --url http://localhost:8000 --rate 10 --duration 5min
      turn a command line into a plan: the flags of inferometer run become settings
  inferometer init chat.yaml --profile chat --url http://localhost:8000
      start from a built-in plan; inferometer profiles lists them
  inferometer init -
      print the plan and write no file
"""


@click.command(epilog=INIT_EXAMPLES)
@click.argument("file", required=False, default="plan.yaml", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--profile", metavar="NAME", help="Start from a built-in plan or from a file.")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@all_flags
@work_in("inferometer.cli.work.init:init")
def init() -> None:
    """Write a commented plan to FILE. Default: plan.yaml; `-` prints it.

    The plan can be run unchanged. Settings that are not set are in it as comments with an example value.
    """
