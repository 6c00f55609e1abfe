"""What to choose: the one home of decisions; pure functions over frozen values.

To read in this order:

    scorers/adapter_affinity.py   the idea of the product
    rules.py                      an engine's state and evidence -> its EngineRow (engine_row.py),
                                  by filters/, scorers/, batching.py, cohort.py, evidence.py
    fleet_rows.py                 rows and requests in flight -> columns and indexes (view.py),
                                  by occupancy.py (slots) and holder_index.py (who holds what)
    kernel.py                     one request over the columns: predict, refuse, rank,
                                  by registry.py (all filters, scorers, pickers), load_times.py
    fleet.py                      Query -> Decided, and its booking; fleet_twin.py does so in numpy,
                                  runtime/native_fleet.py compiled
    decided.py                    what was decided, packed; its scores when somebody asks

Apart from requests: placement.py, where adapters should live.
"""
